"""A block limits its thread only and restores the count; results are bit-identical for any number of threads."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.linalg  # its BLAS is limited too
import scipy.sparse.linalg
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from hopstate.ops.eigenvectors import laplacian_eigenvectors
from hopstate.ops.filters.laplacian import sparse_laplacian
from hopstate.ops.filters.transition import SparseTransition
from hopstate.ops.threads import one_thread, run_units, usual_threads


@pytest.fixture(autouse=True)
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def in_thread(ask) -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(ask()))
    thread.start()
    thread.join()
    return found[0]


def test_one_thread_inside_a_block_and_all_after_it() -> None:
    with threadpool_limits(2, user_api="blas"):
        with one_thread():
            assert (torch.get_num_threads(), usual_threads(), blas_threads()) == (1, 3, {2})
            with one_thread(numpy=True), one_thread(numpy=True):
                assert (torch.get_num_threads(), usual_threads(), blas_threads()) == (1, 3, {1})
            assert (torch.get_num_threads(), usual_threads(), blas_threads()) == (1, 3, {2})
        with pytest.raises(KeyError), one_thread(numpy=True):
            raise KeyError
        assert (torch.get_num_threads(), usual_threads(), blas_threads()) == (3, 3, {2})


def test_other_threads_keep_their_count() -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with one_thread():
            entered.set()
            leave.wait(10)

    worker = threading.Thread(target=hold)
    worker.start()
    assert entered.wait(10)
    assert torch.get_num_threads() == 3
    with one_thread():
        assert in_thread(torch.get_num_threads) == 3  # threads started meanwhile inherit the usual number
    leave.set()
    worker.join()
    assert in_thread(torch.get_num_threads) == torch.get_num_threads() == 3


def test_numpy_is_limited_for_one_caller_at_a_time_and_from_any_thread() -> None:
    inside, most = [0], []

    def work() -> set[int]:
        with one_thread(numpy=True):
            inside[0] += 1
            most.append(inside[0])
            limited = blas_threads()
            inside[0] -= 1
        return limited

    before = blas_threads()
    with ThreadPoolExecutor(3) as pool:
        assert all(limited == {1} for limited in pool.map(lambda _: work(), range(30)))
    assert set(most) == {1}
    assert blas_threads() == before


def test_compiled_kernels_keep_all_threads() -> None:
    barrier = threading.Barrier(3, timeout=10)
    with one_thread():
        run_units(lambda first, last: barrier.wait(), 3)  # passes only if three threads run concurrently


def ring_of_cliques(count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    a = np.kron(np.eye(count), 1 - np.eye(size)).astype(bool)
    for c in range(count):
        here, there = c * size, (c * size + size + 1) % (count * size)
        a[here, there] = a[there, here] = True
    rng = np.random.default_rng(0)
    far = rng.integers(0, len(a), (len(a), 2))
    a[far[:, 0], far[:, 1]] = a[far[:, 1], far[:, 0]] = True
    np.fill_diagonal(a, False)
    return np.concatenate([[0], np.cumsum(a.sum(1))]), np.nonzero(a)[1]


@pytest.mark.parametrize(("count", "size"), [(25, 12), (90, 10)])  # dense, and by Lanczos
def test_laplacian_eigenvectors_are_the_same_bits_for_any_number_of_threads(count: int, size: int) -> None:
    indptr, indices = ring_of_cliques(count, size)
    found = []
    for threads in (1, 2, 3):
        with threadpool_limits(threads, user_api="blas"):
            torch.set_num_threads(threads)
            found.append(laplacian_eigenvectors(indptr, indices, 12)[1].tobytes())
    assert found[0] == found[1] == found[2]


def test_sparse_factorization_uses_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bits depend on the number of threads, and two threads would spin; in training and evaluation too."""
    found, splu = set[int](), scipy.sparse.linalg.splu

    class Factor:
        def __init__(self, *args: object, **options: object) -> None:
            found.update(blas_threads())
            self.made = splu(*args, **options)

        def solve(self, X: np.ndarray) -> np.ndarray:
            found.update(blas_threads())
            return self.made.solve(X)

    monkeypatch.setattr(scipy.sparse.linalg, "splu", Factor)
    pairs, c = np.array([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]]), torch.tensor([1.0, 0.5], requires_grad=True)
    with threadpool_limits(2, user_api="blas"):
        parts = [sparse_laplacian(pairs[:, :k], np.ones(k), 5, np.dtype(np.float32)) for k in (5, 3)]
        transition = SparseTransition(c, *parts)
        H = transition.solve(torch.ones(1, 5, 2, requires_grad=True))
        transition.act(H[None], np.array([1.0])).square().sum().backward()
        assert torch.get_num_threads() == 3
        assert blas_threads() == {2}
    assert found == {1}
