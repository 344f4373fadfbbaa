"""Settings shared by all tests: shape checks on, plots without a screen, real data found or skipped."""

import os
import random
from pathlib import Path

os.environ.setdefault("HOPSTATE_TYPECHECK", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
if "PYTEST_XDIST_WORKER" in os.environ:  # side by side, workers with a thread for every core wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

SHARED = Path(os.environ.get("HOPSTATE_SHARED", Path(__file__).resolve().parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and golden files beside the checkout; the test skips where it is absent."""
    if not (SHARED / "data").is_dir():
        pytest.skip("needs the shared data folder beside the checkout, which is not here")
    return SHARED


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    random.seed()  # torch-geometric names modules by it; one that draws a name again would get the code of another
