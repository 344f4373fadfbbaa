"""CTDG-SSM's appendix E: noise in Laplacians and streams, values for missing earlier events, no norm, no residual."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from hopstate.ops.filters.laplacian import dense_laplacian, noisy_laplacian
from hopstate.runs.load import load_run
from hopstate.runs.run import evaluate, fit

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

from robustness import robustness

SMALL: dict[str, Any] = {
    "model__dim": 6, "model__time_dim": 4, "model__static": "random", "model__static_dim": 4, "batch_size": 20,
    "evaluation__batch_size": 20, "evaluation__strategies": ["random"], "loop__epochs": 1, "loop__progress": False,
    "loop__logger": "none", "loop__device": "cpu",
}  # fmt: skip


def run_of(folder: Path, *, kind: bool = False, **settings: Any) -> Any:
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 8, 160), rng.integers(0, 6, 160)
    table = pd.DataFrame({"source": source, "target": 8 + target, "time": np.arange(160)})
    if kind:
        table = table.assign(kind=["add"] * 160)
        table.loc[len(table)] = [table.source[0], table.target[0], 160, "delete"]
        table = pd.concat([table, table[:20].assign(time=np.arange(161, 181))])
    folder.mkdir()
    table.to_csv(folder / "events.csv", index=False)
    return fit("ctdg-ssm", folder / "events.csv", out=folder / "run", **{**SMALL, **settings})


def test_noisy_laplacians_are_close_and_keep_their_spectrum():
    g = torch.Generator().manual_seed(0)
    pairs = torch.randint(0, 9, (2, 14), generator=g)
    L = dense_laplacian(pairs, torch.ones(14, dtype=torch.float64), 9)
    for epsilon in (1e-3, 0.3, 1.0):
        noisy = noisy_laplacian(L, epsilon, (3, 0))
        torch.testing.assert_close(noisy, noisy.mT)
        values = torch.linalg.eigvalsh(noisy)
        assert values.min() >= -1e-12
        assert values.max() <= 2 + 1e-12
        assert 0 < torch.linalg.matrix_norm(noisy - L, 2).item() <= 2 * epsilon
        assert torch.equal(noisy, noisy_laplacian(L, epsilon, (3, 0)))
        assert not torch.equal(noisy, noisy_laplacian(L, epsilon, (3, 1)))


def measured(run: Path, **options: Any) -> pd.DataFrame:
    with load_run(run) as (_, task), torch.no_grad():
        task.model.eval()
        return robustness(task, **options)


def test_a_memory_is_robust_to_laplacian_noise(tmp_path):
    run = run_of(tmp_path / "a")
    table = measured(run.path, levels=(0.0, 0.5))
    assert list(dict.fromkeys(table.noise)) == ["stream", "laplacian"]
    whole = table[table.setting == "transductive"]
    assert whole[whole.sigma == 0].average_precision.tolist() == pytest.approx(
        [run.metrics["test"]["average_precision"]] * 2
    )
    assert (whole[whole.sigma == 0.5].average_precision != run.metrics["test"]["average_precision"]).all()
    again = measured(run.path, levels=(0.5,), noise=["laplacian"])
    assert again.average_precision.tolist() == pytest.approx(
        table[(table.sigma == 0.5) & (table.noise == "laplacian")].average_precision.tolist()
    )


@pytest.mark.slow
def test_random_edges_are_rejected_for_streams_with_deletions(tmp_path):
    run = run_of(tmp_path / "a", kind=True)
    assert len(measured(run.path, noise=["laplacian"], levels=(0.2,)))
    with pytest.raises(AssertionError, match="laplacian"):
        measured(run.path, noise=["stream"], levels=(0.2,))


@pytest.mark.parametrize(
    "settings",
    [
        {"laplacian_noise": 0.1},
        *(
            pytest.param(s, marks=pytest.mark.slow)
            for s in ({"norm": False}, {"residual": False}, {"max_log_delta": 60.0})
        ),
    ],
    ids=str,
)
def test_each_setting_trains_and_changes_the_output(tmp_path, settings, plain):
    run = run_of(tmp_path / "other", **{f"model__{k}": v for k, v in settings.items()})
    assert run.metrics["test"] != plain
    assert evaluate(run.path) == pytest.approx(run.metrics["test"])


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Metrics of a run with default settings."""
    return run_of(tmp_path_factory.mktemp("plain") / "run").metrics["test"]
