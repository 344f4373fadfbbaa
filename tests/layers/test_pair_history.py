"""Pair features in a head: the closed form in float64, both parts train, scales ignore missing values."""

import numpy as np
import pytest
import torch

from hopstate.errors import ShapeError
from hopstate.layers.decoders import FARTHEST, LinkHead, PairHistory
from hopstate.testing.conformance import F32_TIGHT, F64


def features(pairs: int = 7, count: int = 5) -> torch.Tensor:
    """Return features with missing ones: some of each column, and a pair without any."""
    x = 3 * torch.randn(pairs, count, generator=torch.Generator().manual_seed(1))
    x[0] = torch.nan
    x[2, 1:3] = torch.nan
    return x


def naive(part: PairHistory, x: np.ndarray) -> np.ndarray:
    """Return encodings in float64, number by number."""
    weight = {name: p.detach().double().numpy() for name, p in part.state_dict().items()}
    out = []
    for row in x.astype(np.float64):
        scaled = [0.0 if np.isnan(v) else (v - m) / s for v, m, s in zip(row, weight["mean"], weight["scale"])]
        given = np.array([min(max(v, -FARTHEST), FARTHEST) for v in scaled] + [float(np.isnan(v)) for v in row])
        hidden = np.maximum(weight["hidden.weight"] @ given + weight["hidden.bias"], 0)
        out.append(np.maximum(weight["output.weight"] @ hidden + weight["output.bias"], 0))
    return np.array(out)


def test_the_head_equals_the_reference_in_float64() -> None:
    torch.manual_seed(0)
    head, x = LinkHead(4, pair=PairHistory(5, dim=6)).double(), features()
    assert head.pair is not None
    head.pair.fit(x)
    x[3, 0] = 1e6  # far outside the fitted range
    u, v = torch.randn(2, 7, 4, dtype=torch.float64)
    encoded = naive(head.pair, x.numpy())
    both = np.concatenate([u.numpy(), v.numpy(), encoded], 1)
    merge, score = head.merge.weight.detach().numpy(), head.score.weight.detach().numpy()
    hidden = np.maximum(both @ merge.T + head.merge.bias.detach().numpy(), 0)
    expected = (hidden @ score.T + head.score.bias.detach().numpy())[:, 0]
    np.testing.assert_allclose(head(u, v, x).detach().numpy(), expected, rtol=F64)


def test_both_parts_receive_gradients() -> None:
    torch.manual_seed(0)
    head = LinkHead(64, pair=PairHistory(5))
    u = torch.randn(7, 64, requires_grad=True)
    head(u, u.flip(0), features()).sum().backward()
    assert u.grad is not None
    assert (u.grad.abs().sum(1) > 0).all()
    for name, p in head.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name
        assert p.grad.abs().max() > 0, name


def test_the_scale_ignores_missing_values() -> None:
    part, x = PairHistory(5), features(400)
    x[:, 4] = 2.5
    part.fit(x)
    np.testing.assert_allclose(part.mean, np.nanmean(x.numpy().astype(np.float64), 0), rtol=F32_TIGHT)
    np.testing.assert_allclose(part.scale[:4], np.nanstd(x.numpy()[:, :4].astype(np.float64), 0), rtol=F32_TIGHT)
    assert part.scale[4] == 1  # constant
    part.fit(x[:0])
    assert part.mean.tolist() == [0] * 5
    assert part.scale.tolist() == [1] * 5


def test_the_encoding_of_a_pair_does_not_depend_on_the_batch() -> None:
    torch.manual_seed(0)
    part, x = PairHistory(5), features()
    whole = part(x)
    for i in range(len(x)):
        torch.testing.assert_close(part(x[i : i + 1]), whole[i : i + 1])


def test_a_missing_value_differs_from_the_mean() -> None:
    torch.manual_seed(0)
    part = PairHistory(5)
    assert not torch.equal(part(torch.full((1, 5), torch.nan)), part(torch.zeros(1, 5)))


@pytest.mark.parametrize("given", [None, torch.zeros(3, 4)])
def test_an_input_without_the_features_is_rejected(given: torch.Tensor | None) -> None:
    with pytest.raises(ShapeError):
        LinkHead(4, pair=PairHistory(5))(torch.zeros(3, 4), torch.zeros(3, 4), given)
