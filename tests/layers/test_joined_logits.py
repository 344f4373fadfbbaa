"""Joined logits: the weighted mean outside training, the network alone in it, each pair by itself."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hopstate.layers.alike import alike
from hopstate.layers.heads import LinkHead
from hopstate.layers.joined_logits import JoinedLogits, mean_of_logits
from hopstate.layers.pair_history import PackedPairHistory, PairHistory


class Sum(nn.Module):
    """Rules that add the features up, and say so."""

    def forward(self, features: Tensor) -> Tensor:
        return features.double().nan_to_num().sum(1)

    def feature_shares(self, features: np.ndarray) -> np.ndarray:
        return np.nan_to_num(features.astype(np.float64))


def head(share: float, dim: int = 6) -> LinkHead:
    torch.manual_seed(0)
    joined = JoinedLogits(Sum())
    joined.share.fill_(share)
    return LinkHead(4, pair=PairHistory(3, dim, joined=joined, given=5))


def asked(pairs: int = 7) -> tuple[Tensor, Tensor, Tensor]:
    made = torch.Generator().manual_seed(1)
    x = torch.randn(pairs, 5, generator=made)
    x[::3, 1] = torch.nan
    return torch.randn(pairs, 4, generator=made), torch.randn(pairs, 4, generator=made), x


@pytest.mark.parametrize("share", [0.25, 0.75, 1.0])
@pytest.mark.parametrize("dim", [6, 0])
def test_outside_training_a_logit_is_the_mean_of_both(share: float, dim: int) -> None:
    model, (u, v, x) = head(share, dim), asked()
    alone = model.train()(u, v, x)
    found = model.eval()(u, v, x)
    expected = (1 - share) * alone.detach().double().numpy() + share * Sum()(x).numpy()
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    assert alone.dtype == torch.float32


def test_no_share_is_the_network_to_the_bit() -> None:
    model, (u, v, x) = head(0.0), asked()
    torch.testing.assert_close(model.train()(u, v, x), model.eval()(u, v, x), rtol=1e-5, atol=1e-6)


def test_training_has_the_networks_gradient_alone() -> None:
    model, (u, v, x) = head(0.75), asked()
    grads = []
    for share in (0.75, 0.0):
        assert model.pair is not None
        assert model.pair.joined is not None
        model.pair.joined.share.fill_(share)
        model.zero_grad()
        model.train()(u, v, x).sum().backward()
        grads.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert len(grads[0]) == len(list(model.parameters()))
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize("dim", [6, 0])
def test_packed_and_alone_are_as_in_company(dim: int) -> None:
    model, (u, v, x) = head(0.5, dim).eval(), asked()
    with torch.no_grad(), alike():
        whole = model(u, v, x)
        one_by_one = torch.cat([model(u[i : i + 1], v[i : i + 1], x[i : i + 1]) for i in range(len(x))])
        assert model.pair is not None
        packed = PackedPairHistory(model.pair)
        torch.testing.assert_close(whole, one_by_one, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(packed(x), model.pair(x).numpy(), rtol=1e-5, atol=1e-6)
        z = torch.randn(len(x))
        torch.testing.assert_close(packed.with_rules(z, x), model.pair.with_rules(z, x), rtol=1e-5, atol=1e-6)


def test_what_rules_add_by_features_is_their_share_of_the_logit() -> None:
    model, (_, _, x) = head(0.25), asked()
    assert model.pair is not None
    joined = model.pair.joined
    assert joined is not None
    z = torch.zeros(len(x))
    np.testing.assert_allclose(joined.feature_shares(x).sum(1), joined.joined(z, x).numpy())
    joined.share.fill_(0.0)
    assert not joined.feature_shares(x).any()


def test_no_pair_has_no_logit() -> None:
    model = head(0.5).eval()
    u, v, x = asked(0)
    assert model(u, v, x).shape == (0,)
    assert mean_of_logits(torch.zeros(0), torch.zeros(0), 0.5).shape == (0,)
