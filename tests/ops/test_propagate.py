import numpy as np
import pytest
import torch

from hopstate.errors import ShapeError
from hopstate.ops.propagate import hop_powers, hop_powers_naive
from hopstate.testing.conformance import assert_close_rmse
from torch_threads import with_threads


def random_csr(n: int, density: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of any number of entries, with duplicates, self-loops and empty rows."""
    generator = np.random.default_rng(seed)
    counts = generator.poisson(density * n, n) * (generator.random(n) > 0.2)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    indices = np.concatenate([np.sort(generator.integers(0, n, c)) for c in counts] or [[]]).astype(np.int64)
    return indptr, indices


def filled(x: np.ndarray, num_hops: int) -> np.ndarray:
    tokens = np.full((len(x), num_hops + 1, x.shape[1]), np.nan, np.float32)  # reading before writing gives NaN
    tokens[:, 0] = x
    return tokens


# widths on both sides of the tiles of 16 and 64 features
@pytest.mark.parametrize(
    ("width", "num_hops"), [*((w, 5) for w in (1, 7, 15, 16, 17, 63, 64, 65, 80, 131)), (3, 0), (3, 1), (3, 12)]
)
def test_equals_dense_powers(width: int, num_hops: int) -> None:
    indptr, indices = random_csr(37, 0.15)
    x = np.random.default_rng(1).standard_normal((37, width)).astype(np.float32)
    tokens = filled(x, num_hops)
    hop_powers(indptr, indices, tokens)
    assert_close_rmse(tokens, hop_powers_naive(indptr, indices, x, num_hops))
    assert np.array_equal(tokens[:, 0], x)


def test_small_and_empty_graphs() -> None:
    nothing = np.zeros(0, np.int64)
    for n, width in ((0, 3), (1, 3), (4, 3), (4, 0)):
        x = np.random.default_rng(0).standard_normal((n, width)).astype(np.float32)
        tokens = filled(x, 2)
        hop_powers(np.zeros(n + 1, np.int64), nothing, tokens)
        assert np.array_equal(tokens, np.repeat(x[:, None], 3, 1))  # without edges A_hat is the identity


def test_constant_on_a_regular_graph_stays_constant() -> None:
    indices = np.stack([np.roll(np.arange(50), 1), np.roll(np.arange(50), -1)], 1)
    tokens = filled(np.ones((50, 2), np.float32), 6)
    hop_powers(np.arange(0, 101, 2), np.sort(indices, 1).reshape(-1), tokens)
    assert_close_rmse(tokens, np.ones((50, 7, 2)), dtype=torch.float32)


def test_threads_do_not_change_hop_powers() -> None:
    indptr, indices = random_csr(3000, 0.01)  # several units of work
    x = np.random.default_rng(1).standard_normal((3000, 100)).astype(np.float32)

    def run() -> np.ndarray:
        tokens = filled(x, 3)
        hop_powers(indptr, indices, tokens)
        return tokens

    one, *more = with_threads(run, (1, 2, 3))
    for other in more:
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "tokens",
    [
        np.zeros((3, 2, 4), np.float32),
        np.zeros((2, 2, 4), np.float64),
        np.zeros((2, 4), np.float32),
        np.zeros((2, 4, 3), np.float32).transpose(0, 2, 1),
    ],
)
def test_wrong_arrays_are_rejected(tokens: np.ndarray) -> None:
    with pytest.raises(ShapeError):
        hop_powers(np.zeros(3, np.int64), np.zeros(0, np.int64), tokens)
