"""Settings of all tests: shape checks on, plots without a display, tests without real data skipped."""

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
if "PYTEST_XDIST_WORKER" in os.environ:  # parallel workers with one thread per core would wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from filelock import FileLock

SHARED = Path(os.environ.get("HOPSTATE_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def pytest_collection_finish() -> None:
    """Exclude objects of the collection phase from later garbage collections: they live until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _give_back() -> Iterator[None]:
    """Return the memory of a module's tests to the system, so that a worker needs as much as its largest module.

    Imported modules and caches survive: later garbage collections skip them.
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
    """Disable drawing of curves, a third of the time of a small run; yield the real function."""
    from hopstate.training import progress

    with pytest.MonkeyPatch.context() as patch:
        real = progress.draw_curves
        patch.setattr(progress, "draw_curves", lambda *_: None)
        yield real


@pytest.fixture
def draws_curves(_draw_no_curves: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs draw their curves."""
    monkeypatch.setattr("hopstate.training.progress.draw_curves", _draw_no_curves)


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, with the dataset cache inside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOPSTATE_DATA", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    random.seed()  # torch-geometric names generated modules by it; equal names would share code


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Return a finished small run of a method by name, trained once and shared by all workers of the session.

    The folder is read-only by convention: a test that writes into one copies it first.
    See `made_events.train_shared` and `made_tables.train_shared` for the data.
    """
    import made_events  # imported here, so that GPU tests run without jsonargparse
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
