"""Settings shared by all tests: shape checks on, plots without a screen, real data found or skipped."""

import contextlib
import ctypes
import gc
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HOPSTATE_TYPECHECK", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
if "PYTEST_XDIST_WORKER" in os.environ:  # side by side, workers with a thread for every core wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from filelock import FileLock

SHARED = Path(os.environ.get("HOPSTATE_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def pytest_collection_finish() -> None:
    """Leave what collection made out of later garbage collections: it stays until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _give_back() -> Iterator[None]:
    """Give the memory of a module's tests back to the system, so that a worker needs what its largest module needs.

    What survives is imported modules and caches: later garbage collections leave it out.
    """
    yield
    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and golden files next to the checkout; the test skips where it is absent."""
    if not (SHARED / "data").is_dir():
        pytest.skip("needs the shared data folder next to the checkout, which is not here")
    return SHARED


@pytest.fixture(scope="session", autouse=True)
def _draw_no_curves() -> Iterator[Callable[..., None]]:
    """Let no run draw its curves, which takes a third of a small run; yield the real function."""
    from hopstate.training import progress

    with pytest.MonkeyPatch.context() as patch:
        real = progress.draw_curves
        patch.setattr(progress, "draw_curves", lambda *_: None)
        yield real


@pytest.fixture
def draws_curves(_draw_no_curves: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs draw their curves."""
    monkeypatch.setattr("hopstate.training.progress.draw_curves", _draw_no_curves)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    random.seed()  # torch-geometric names modules by it; one that draws a name again would get the code of another


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Return a finished small run of a method by name, trained once and shared by all workers of the session.

    The folder is read-only by convention: a test that writes into one copies it first.
    See `made_events.train_shared` and `made_tables.train_shared` for the data.
    """
    import made_events  # imported here, so that tests of a GPU run where jsonargparse is absent
    import made_tables
    from hopstate.runs.run import load

    home = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        home = home.parent  # the workers' common folder
    home = home / "trained"
    home.mkdir(exist_ok=True)

    def run(method: str) -> Any:
        with FileLock(home / f"{method}.lock"):
            if not (home / method / "result.json").is_file():
                made = made_events if method in made_events.SMALL else made_tables
                made.train_shared(method, home)
        return load(home / method)

    return run
