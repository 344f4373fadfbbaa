import pytest
import torch

from hopstate.methods.nagphormer.model import AttentionReadout, NAGphormer
from hopstate.testing.conformance import assert_close_rmse


@pytest.mark.parametrize("hops", [1, 2, 7])
def test_attention_equals_the_paper(hops: int) -> None:
    """The paper's score (Z_0 || Z_k) W_a, for any half of W_a that multiplies Z_0."""
    z = torch.randn(4, hops + 1, 6, dtype=torch.float64)
    readout = AttentionReadout(6).double()
    w = torch.cat([torch.randn(6, dtype=torch.float64), readout.score.weight[0]])
    out = []
    for node in z:
        alpha = torch.softmax(torch.stack([torch.cat([node[0], node[k]]) @ w for k in range(1, hops + 1)]), 0)
        out.append(node[0] + sum(a * node[k] for k, a in enumerate(alpha, 1)))
    assert_close_rmse(readout(z), torch.stack(out))


def test_attention_weights_sum_to_one() -> None:
    weights = AttentionReadout(6).weights(10 * torch.randn(5, 4, 6))
    assert weights.shape == (5, 3)
    assert_close_rmse(weights.sum(1), torch.ones(5))


def test_attention_of_one_token_is_the_token() -> None:
    z = torch.randn(3, 1, 6)
    assert_close_rmse(AttentionReadout(6)(z), z[:, 0])


@pytest.mark.parametrize("readout", ["self", "sum"])
def test_self_and_sum_readouts(readout: str) -> None:
    config = NAGphormer.Config(dim=8, num_heads=2, readout=readout)
    model = NAGphormer(config, in_dim=5, num_classes=3, num_hops=3).eval()
    x = torch.randn(3, 4, 5)
    z = model.norm(model.blocks(model.embed(x)))
    assert_close_rmse(model(x), model.head(z[:, 0] if readout == "self" else z[:, 0] + z[:, 1] + z[:, 2] + z[:, 3]))
