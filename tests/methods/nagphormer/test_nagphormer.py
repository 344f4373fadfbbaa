import numpy as np
import pytest
import torch
from torch import nn

from hopstate.errors import ConfigError, ShapeError
from hopstate.methods.nagphormer.model import NAGphormer
from hopstate.ops.propagate import hop_powers_naive
from hopstate.testing.conformance import ModelCase, assert_close_rmse, check_model


def config(**changes: object) -> NAGphormer.Config:
    return NAGphormer.Config(**{"dim": 16, "num_layers": 2, "num_heads": 4, "dropout": 0.3, **changes})


def make(*, num_hops: int = 4, num_classes: int = 3, **changes: object) -> NAGphormer:
    return NAGphormer(config(**changes), in_dim=5, num_classes=num_classes, num_hops=num_hops)


@pytest.mark.parametrize(
    ("readout", "num_hops"), [("attention", 0), ("attention", 1), ("attention", 4), ("self", 4), ("sum", 1)]
)
def test_conforms(readout: str, num_hops: int) -> None:
    def rows(inputs: tuple[torch.Tensor], order: torch.Tensor) -> tuple[torch.Tensor]:
        return (inputs[0][order],)

    check_model(
        ModelCase(
            make=lambda: make(readout=readout, num_hops=num_hops),
            inputs=(torch.randn(7, num_hops + 1, 5),),
            permute=rows,
            take=rows,
        )
    )


def test_batch_of_one_in_training() -> None:
    assert make().train()(torch.randn(1, 5, 5)).shape == (1, 3)


def test_outputs_are_logits() -> None:
    model = make().eval()
    totals = model(torch.randn(50, 5, 5)).exp().sum(1)
    assert (totals - 1).abs().max() > 1e-3  # log-probabilities would sum to 1


def test_fact_1_decoupled_gcn() -> None:
    """A fixed attention matrix whose last row is beta, and SUM readout, give sum_k beta_k A_hat^k X exactly."""
    generator = np.random.default_rng(0)
    dense = np.triu(generator.random((9, 9)) < 0.4, 1)
    rows, cols = np.nonzero(dense | dense.T)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=9))])
    x, beta = generator.standard_normal((9, 5)), generator.random(5)
    tokens = torch.from_numpy(hop_powers_naive(indptr, cols, x, 4))

    model = make(readout="sum", num_layers=1).double().eval()
    model.embed = model.norm = model.head = nn.Identity()

    class Fixed(nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            s = z.new_zeros(5, 5)
            s[4] = torch.from_numpy(beta)
            return s @ z

    model.blocks = Fixed()
    a_hat = dense | dense.T
    a_hat = (a_hat + np.eye(9)) / np.sqrt(np.outer(a_hat.sum(1) + 1, a_hat.sum(1) + 1))
    expected = sum(b * np.linalg.matrix_power(a_hat, k) @ x for k, b in enumerate(beta))
    assert_close_rmse(model(tokens), expected)


def test_wrong_tokens_are_named() -> None:
    with pytest.raises(ShapeError, match="4"):
        make()(torch.randn(2, 4, 5))
    with pytest.raises(ShapeError, match="6"):
        make()(torch.randn(2, 5, 6))


@pytest.mark.parametrize(
    "wrong", [{"dim": 10}, {"dropout": 1.0}, {"attention_dropout": -0.1}, {"num_layers": -1}, {"readout": "mean"}]
)
def test_wrong_nagphormer_settings_are_rejected(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        config(**wrong)
