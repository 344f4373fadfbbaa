"""Outputs of commands and readers in the golden files: score, rank, stream, replay, prepare, file formats."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import cases
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import hopstate
from hopstate.data.readers.read_graph import read_graph_set

METHODS = ("recency", "pair-trees", "dyg-mamba", "ctdg-ssm")  # a heuristic, a forest, a history model, a memory
PAIRS = [("u1", "i2"), ("u3", "i3"), ("u9", "i7"), ("u1", "u4"), ("u2", "nobody")]
LATER = pd.DataFrame(
    {
        "user": ["u1", "u3", "u1", "new", "u5", "u5"],
        "item": ["i2", "i9", "i2", "i4", "i1", "i8"],
        "time": [160, 161, 161, 165, 170, 170],
        "amount": [0.5, -1.0, 0.25, 0.0, 2.0, 1.0],
        "rating": [1, 5, 3, 3, 2, 4],
    }
)


def run_of(method: str, home: Path) -> Path:
    """Return a run of a method on the golden dataset `shop`, trained once per `home`."""
    if not (home / method).is_dir():
        cases.command(*cases.fit_words(method, "shop", home / method, "64"))
    return home / method


def _table(file: Path) -> dict[str, list[Any]]:
    """Return a written table by column."""
    return json.loads(pd.read_csv(file).to_json(orient="split", double_precision=15)) | {"index": None}


def score(method: str, home: Path) -> dict[str, Any]:
    """Return what `hopstate score` writes for a table of pairs."""
    pd.DataFrame(PAIRS, columns=["user", "item"]).to_csv(home / "pairs.csv", index=False)
    out = home / "scores.csv"
    cases.command("score", str(run_of(method, home)), "--pairs", str(home / "pairs.csv"), "--out", str(out))
    return _table(out)


def rank(method: str, home: Path) -> dict[str, Any]:
    """Return what `hopstate rank` writes for two sources."""
    sources = ("--source", "u1", "--source", "u3", "--top", "4")
    cases.command("rank", str(run_of(method, home)), *sources, "--time", "400", "--out", str(home / "ranks.csv"))
    return _table(home / "ranks.csv")


def stream(method: str, home: Path) -> dict[str, Any]:
    """Return what `hopstate stream` writes for later events, which it reads from two files one after the other."""
    run, found = run_of(method, home), []
    for number, part in enumerate((LATER[:4], LATER[4:])):
        part.to_csv(home / "later.csv", index=False)
        out, state = home / f"stream{number}.csv", ("--save", str(home / f"state-{method}"))
        start = ("--ignore-state",) if not number else ("--state", str(home / f"state-{method}"))
        cases.command("stream", str(run), "--data", str(home / "later.csv"), *start, *state, "--out", str(out))
        found.append(_table(out))
    return {"first": found[0], "second": found[1]}


def replay(method: str, home: Path) -> dict[str, Any]:
    """Return what `hopstate replay` writes after a service took the later events in two requests."""
    run = run_of(method, home)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = threading.Thread(target=_post_and_stop, args=(port, (LATER[:4], LATER[4:])))
    client.start()
    cases.command(
        "serve", str(run), "--port", str(port), "--folder", str(home / f"live-{method}"), "--log-format", "off"
    )
    client.join()
    cases.command("replay", str(run), "--folder", str(home / f"live-{method}"), "--out", str(home / "replay.csv"))
    return _table(home / "replay.csv")


def _post_and_stop(port: int, parts: tuple[pd.DataFrame, ...]) -> None:
    """Send events to a service as soon as it listens, then stop it as Ctrl-C does."""
    names = {"user": "src", "item": "dst", "time": "t"}
    try:
        for part in parts:
            body = json.dumps({"events": part.rename(columns=names).to_dict("records")}).encode()
            request = Request(f"http://127.0.0.1:{port}/events", body, {"Content-Type": "application/json"})
            for _ in range(600):
                try:
                    urlopen(request, timeout=60).close()
                    break
                except URLError as error:
                    if not isinstance(error.reason, ConnectionRefusedError):
                        raise
                    time.sleep(0.1)
    finally:
        os.kill(os.getpid(), signal.SIGINT)


def prepare(name: str, home: Path) -> dict[str, Any]:
    """Return the events of the store that `hopstate prepare` writes."""
    words = ("--read.edge_columns", "[amount, rating]") if name == "shop" else ()
    cases.command("prepare", str(cases.DATA / f"{name}.csv"), "--out", str(home / "store"), "--memory", "1GiB", *words)
    return events(home / "store")


# ---- readers ------------------------------------------------------------------------------------------------------
def events(source: Any, **options: Any) -> dict[str, Any]:
    """Return what `read_events` reads, as lists."""
    stream = hopstate.read_events(source, **options)
    names = ("src", "dst", "t", "kind", "edge_attr", "labels", "x")
    return {"ids": _ids(stream), "num_nodes": stream.num_nodes} | {n: _listed(getattr(stream, n)) for n in names}


def graph(source: Any, **options: Any) -> dict[str, Any]:
    """Return what `read_graph` reads, as lists."""
    found = hopstate.read_graph(source, **options)
    data = found.to_pyg()
    return {"ids": _ids(found), "num_nodes": found.num_nodes} | _fields(dict(data.to_dict()))


def graphs(source: Any, **options: Any) -> dict[str, Any]:
    """Return what `read_graph_set` reads, as lists."""
    found = read_graph_set(str(source), **options)
    union = _fields(dict(found.union.to_pyg().to_dict()))
    return {"offsets": found.offsets.tolist(), "y": _listed(found.y)} | union


def _ids(record: Any) -> list[Any] | None:
    return None if record.node_ids is None else record.node_ids.ids.tolist()


def _fields(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: _listed(value) for name, value in sorted(fields.items()) if hasattr(value, "tolist")}


def _listed(value: Any) -> Any:
    return None if value is None else np.asarray(value).astype(float).round(6).tolist()


EDGES = np.array([[0, 1], [1, 2], [2, 3], [3, 0], [0, 2], [4, 1]])
FEATURES = np.array([[0.5, 1], [1.5, 0], [-1, 2], [0, 0], [3, -0.5]], np.float32)
CLASSES = np.array([0, 1, 1, 0, 2])
TIMES = np.array([10, 20, 20, 35, 40, 41])


def _snap(home: Path) -> dict[str, Any]:
    rows = "".join(f"{u} {v} {t}\n" for (u, v), t in zip(EDGES, TIMES, strict=True))
    (home / "net.txt").write_text(f"# a comment\n{rows}")
    return events(home / "net.txt")


def _dyglib(home: Path) -> dict[str, Any]:
    ends = EDGES + 1
    number = np.arange(1, 7)
    table = pd.DataFrame({"u": ends[:, 0], "i": ends[:, 1], "ts": TIMES * 1.0, "label": 0.0, "idx": number})
    table.to_csv(home / "ml_net.csv")
    np.save(home / "ml_net.npy", np.vstack([np.zeros(2), np.arange(12).reshape(6, 2)]))
    np.save(home / "ml_net_node.npy", np.vstack([np.zeros(2), FEATURES]))
    return events(home / "ml_net.csv")


JODIE = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n"


def _jodie_rows() -> str:
    return JODIE + "".join(f"{u},{v},{t}.0,{u % 2},0.5,{v}.25\n" for (u, v), t in zip(EDGES, TIMES, strict=True))


def _jodie(home: Path) -> dict[str, Any]:
    (home / "net.csv").write_text(_jodie_rows())
    return events(home / "net.csv")


def _tgb(home: Path) -> dict[str, Any]:
    with zipfile.ZipFile(home / "tgbl-wiki-v2.zip", "w") as archive:
        archive.writestr("tgbl-wiki/tgbl-wiki_edgelist_v2.csv", _jodie_rows())
    return events(home / "tgbl-wiki-v2.zip")


def _event_table() -> pd.DataFrame:
    found = pd.DataFrame({"source": [f"n{u}" for u in EDGES[:, 0]], "target": [f"n{v}" for v in EDGES[:, 1]]})
    dates = pd.to_datetime(TIMES, unit="s", origin="2026-03-01").astype(str)
    return found.assign(timestamp=dates, weight=[0.5, 1, 2, 4, 8, 16], label=["x", "y", "x", "", "y", "x"])


def _parquet(home: Path) -> dict[str, Any]:
    _event_table().to_parquet(home / "events.parquet")
    return events(home / "events.parquet", label_column="label", edge_columns=("weight",))


def _tsv(home: Path) -> dict[str, Any]:
    _event_table().to_csv(home / "events.tsv.gz", sep="\t", index=False)
    return events(home / "events.tsv.gz", label_column="label", edge_columns=("weight",))


def _frame(home: Path) -> dict[str, Any]:
    return events(_event_table(), label_column="label", edge_columns=("weight",))


def _deletions(home: Path) -> dict[str, Any]:
    return events(cases.DATA / "follows.csv")


def _heterophilous(home: Path) -> dict[str, Any]:
    part = np.arange(5) % 3
    masks = {f"{name}_masks": (part == i)[None] for i, name in enumerate(("train", "val", "test"))}
    np.savez(home / "net.npz", node_features=FEATURES, node_labels=CLASSES, edges=EDGES, **masks)
    return graph(home / "net.npz")


def _gnn_benchmark(home: Path) -> dict[str, Any]:
    arrays: dict[str, Any] = {"labels": CLASSES}
    adjacency = scipy.sparse.coo_array((np.ones(6, np.float32), EDGES.T), shape=(5, 5))
    for name, matrix in (("adj", adjacency.tocsr()), ("attr", scipy.sparse.csr_array(FEATURES))):
        parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
        arrays |= {f"{name}_{key}": value for key, value in (parts | {"shape": matrix.shape}).items()}
    np.savez(home / "net.npz", **arrays)
    return graph(home / "net.npz")


def _edge_list(home: Path) -> dict[str, Any]:
    files = [cases.DATA / f"roads_{part}.csv" for part in ("edges", "features", "labels")]
    return graph(files[0], features=str(files[1]), labels=str(files[2]), undirected=False)


def _saved(home: Path) -> dict[str, Any]:
    hopstate.Graph.from_edges(EDGES, 5, x=FEATURES, y=CLASSES).save(home / "saved")
    return graph(home / "saved")


def _tu_text(home: Path) -> dict[str, Any]:
    return graphs(cases.DATA / "chains.txt")


def _tu_folder(home: Path) -> dict[str, Any]:
    parts = {
        "A": "1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n",
        "graph_indicator": "1\n1\n1\n2\n2\n",
        "graph_labels": "1\n-1\n",
        "node_labels": "0\n1\n0\n2\n1\n",
    }
    for name, text in parts.items():
        (home / f"NET_{name}.txt").write_text(text)
    return graphs(home)


READERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "snap": _snap,
    "dyglib": _dyglib,
    "jodie": _jodie,
    "tgb zip": _tgb,
    "events parquet": _parquet,
    "events tsv.gz": _tsv,
    "events frame": _frame,
    "events with deletions": _deletions,
    "heterophilous": _heterophilous,
    "gnn-benchmark": _gnn_benchmark,
    "edge list": _edge_list,
    "saved graph": _saved,
    "tu text": _tu_text,
    "tu folder": _tu_folder,
}


def outputs(home: Path, methods: tuple[str, ...] = METHODS, replays: tuple[str, ...] = METHODS) -> dict[str, Any]:
    """Return the outputs of all commands and readers; `replays` are the methods whose service is started too."""
    found: dict[str, Any] = {}
    for method in methods:
        for command in (score, rank, stream, replay):
            if command is not replay or method in replays:
                found[f"{command.__name__} {method}"] = command(method, home)
    for name in ("messages", "shop"):
        place = home / f"prepare-{name}"
        place.mkdir()
        found[f"prepare {name}"] = prepare(name, place)
    for number, (name, read) in enumerate(READERS.items()):
        place = home / f"reader-{number}"
        place.mkdir()
        found[f"read {name}"] = read(place)
    return found


def check(found: Any, expected: Any, name: str) -> None:
    """Compare outputs: numbers to 1e-6, all else exactly."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), name
        for key, value in expected.items():
            check(found[key], value, f"{name}: {key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), name
        for number, value in enumerate(expected):
            check(found[number], value, f"{name}, {number}")
    elif isinstance(expected, float) and isinstance(found, (int, float)):
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-6, nan_ok=True), name
    else:
        assert found == expected, name
