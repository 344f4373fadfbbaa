"""Every method on a stream whose nodes are deleted and added again: trained, scored, continued, queried by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hopstate.data.events import ADD, GONE, EventStream
from hopstate.methods import get_method
from hopstate.methods.config import config_from
from hopstate.methods.heuristics.edgebank import EdgeBank
from hopstate.runs.run import evaluate, fit, predict, score_stream
from hopstate.testing.conformance import F32, F32_TIGHT

LOOP = {"loop.epochs": 1, "loop.progress": False, "loop.logger": "none", "loop.device": "cpu"}
WIDTHS = {"model.channel_dim": 4, "model.time_dim": 6, "model.out_dim": 6, "batch_size": 20}
LINKS = {"evaluation.strategies": ["random"], "evaluation.batch_size": 20}
MEMORY = {"model.dim": 6, "model.time_dim": 4, "batch_size": 20, "model.order": 2}
SMALL: dict[str, dict[str, Any]] = {
    "ctdg-ssm": {**MEMORY, **LINKS},
    "ctdg-ssm-nodes": MEMORY,
    "dyg-mamba": {**WIDTHS, **LINKS, "history.max_length": 6},
    "dyg-mamba-nodes": {**WIDTHS, "history.max_length": 6},
    "dygformer": {**WIDTHS, **LINKS, "model.max_length": 6},
    "graphmixer": {"model.num_links": 4, "model.dim": 6, "model.time_dim": 6, "model.out_dim": 4, **LINKS},
    "recency": LINKS,
    "edgebank": LINKS,
}


def table(count: int = 240, seed: int = 0) -> pd.DataFrame:
    """Return a file's rows: users u0..u9 and items i0..i7, of which some are deleted and added again."""
    rng, active, rows = np.random.default_rng(seed), [], []
    for t in np.sort(rng.integers(0, count // 2, count)).tolist():
        if active and rng.random() < 0.06:
            node = active[rng.integers(len(active))][int(rng.integers(2))]
            active = [pair for pair in active if node not in pair]
            rows.append((node, None, t, "delete", None))
        elif active and rng.random() < 0.1:
            rows.append((*active.pop(rng.integers(len(active))), t, "delete", None))
        else:
            active.append((f"u{rng.integers(10)}", f"i{rng.integers(8)}"))
            rows.append((*active[-1], t, "add", int(rng.integers(2))))
    return pd.DataFrame(rows, columns=["source", "target", "time", "kind", "label"])


def run_of(method: str, folder: Path, rows: int = 240) -> Any:
    table().iloc[:rows].to_csv(folder / "events.csv", index=False)
    return fit(method, folder / "events.csv", out=folder / "run", config={**LOOP, **SMALL[method]})


QUICK = ("ctdg-ssm", "dyg-mamba-nodes", "edgebank")


@pytest.mark.parametrize("method", [m if m in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in SMALL])
def test_a_file_with_deleted_nodes_from_fit_to_stream(method: str, tmp_path: Path) -> None:
    """Equal scores in one call and in many that separate ties; a row for every event except deletions of links."""
    run = run_of(method, tmp_path, 180)
    assert np.isfinite(list(run.metrics["test"].values())).all()
    if method not in ("recency", "edgebank"):
        assert np.isfinite(pd.read_csv(run.path / "metrics.csv").filter(like="loss")).all(axis=None)
    assert evaluate(run.path) == run.metrics["test"]
    nodes = method.endswith("nodes")
    kinds, rows = table().kind.to_numpy(), table()
    scored = (kinds == "add") | (nodes & rows.target.notna().to_numpy())
    own = predict(run.path, split="all")
    assert own["t"].tolist() == rows.time[:180][scored[:180]].tolist()
    later = rows.iloc[180:]
    whole = score_stream(run.path, later, ignore_state=True, save=tmp_path / "whole")
    assert whole["t"].tolist() == later.time.tolist()  # one row per row of the table
    found: list[float] = []
    for a, b in ((0, 1), (1, 2), (2, 25), (25, 60)):
        options: dict[str, Any] = {"ignore_state": True} if a == 0 else {"state": tmp_path / "parts"}
        found += score_stream(run.path, later.iloc[a:b], save=tmp_path / "parts", **options)["score"].tolist()
    np.testing.assert_allclose(found, whole["score"], rtol=F32)
    np.testing.assert_allclose(predict(run.path, data=later)["score"], found, rtol=F32, atol=F32_TIGHT)


def events(rows: list[tuple[int, int, int]]) -> EventStream:
    src, dst, kind = np.array(rows).T
    return EventStream.from_arrays(src, dst, np.arange(len(rows)), kind=kind, num_nodes=5)


def test_edgebank_forgets_all_pairs_of_a_deleted_node() -> None:
    data = events([(0, 1, ADD), (2, 0, ADD), (2, 1, ADD), (0, 0, GONE), (0, 3, ADD)])
    for memory in ("unlimited", "window", "threshold"):
        bank = EdgeBank(5, EdgeBank.Config(memory=memory, proportion=1.0))
        bank.observe(data.take(np.arange(len(data))))
        pairs = np.array([(0, 1), (2, 0), (2, 1), (0, 3), (0, 0)]).T
        assert bank.score(*pairs, np.full(5, 9)).tolist() == [0, 0, 1, 1, 0]


@pytest.mark.parametrize("method", ["ctdg-ssm", "dyg-mamba"])
def test_automatic_settings_depend_only_on_added_edges(method: str) -> None:
    """Deletions, given or implied, are not training targets, and do not enlarge a stream."""
    n = 6000
    u, v = np.arange(n) % 40, 40 + np.arange(n) % 37
    adds = EventStream(src=u, dst=v, t=np.arange(n), kind=np.zeros(n, np.int8))
    back = np.arange(n)
    both = EventStream.from_arrays(
        np.repeat(u, 2), np.repeat(v, 2), np.repeat(back, 2), kind=np.tile([ADD, 1], n).astype(np.int8), num_nodes=77
    )
    chosen = get_method(method)
    config = config_from(chosen, {"data": "x"})
    assert chosen.auto_config is not None
    one, other = (dict(chosen.auto_config(data, config, ())) for data in (adds, both))
    for name in ("loop.epochs", "batch_size"):
        assert one[name] == other[name], name
