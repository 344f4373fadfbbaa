"""The guarantees of `SECURITY.md`: no code from a run folder, no allocation by a false header, no formula."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hopstate import evaluate
from hopstate.cli.main import main
from hopstate.data.graph import Graph
from hopstate.data.readers.read_events import read_events
from hopstate.data.readers.read_graph import read_graph
from hopstate.data.readers.tu import read_tu
from hopstate.errors import CheckpointError, ConfigError, DataError, FormatError, HopstateError, UnreadableFileError
from hopstate.io.opening import open_regular
from hopstate.io.output import write_table
from hopstate.io.tensors import Archive, load_npy
from hopstate.methods import get_method, method_of_run
from hopstate.methods.config import config_from, load_yaml
from hopstate.runs.report import write_report
from hopstate.training.run_folder import RunFolder

QUICK = {"loop": {"epochs": 1, "progress": False, "logger": "none", "device": "cpu"}, "model": {"dim": 4}}


def test_the_error_names_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "e.csv").write_text("src,dst,t\n1,2,3\n")
    opened = os.open

    def refused(path: Any, *rest: Any, **more: Any) -> int:
        if str(path).endswith("e.csv"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(path, *rest, **more)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(UnreadableFileError, match=r"e\.csv"):
        open_regular(tmp_path / "e.csv")


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


# ---- code ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", ["method", "model", "loop", "data", "read"])
def test_a_run_folder_imports_nothing(run: Path, tmp_path: Path, monkeypatch, key: str) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('ran')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for value in ("evil:METHOD", "evil.Thing", {"class_path": "evil.Thing"}):
        change(run / "config.json", **{key: value})
        with pytest.raises(HopstateError, match=r"config|evil"):
            evaluate(run)
        assert "evil" not in sys.modules


def test_a_custom_method_is_rejected_or_allowed(run: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import replace\nfrom hopstate.methods import get_method\n"
        "METHOD = replace(get_method('mlp'), name='mine')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    change(run / "config.json", method="mine:METHOD")
    assert main(["evaluate", str(run)]) == 1
    assert "--method mine:METHOD" in capsys.readouterr().err
    assert main(["evaluate", str(run), "--method", "other:METHOD"]) != 0
    assert "mine" not in sys.modules
    monkeypatch.setenv("HOPSTATE_METHODS", "another:M, mine:METHOD")
    assert main(["evaluate", str(run)]) == 0
    monkeypatch.delenv("HOPSTATE_METHODS")
    assert main(["evaluate", str(run), "--method", "mine:METHOD"]) == 0
    assert method_of_run("mine:METHOD", "config.json").name == "mine:METHOD"  # named once in this process


def test_settings_name_no_class_and_no_file(tmp_path: Path) -> None:
    from hopstate.methods import get_method

    for given_ in ({"model": "evil.M"}, {"model": {"class_path": "evil.M"}}, {"config": "x"}, {"model": "/dev/zero"}):
        with pytest.raises(ConfigError):
            config_from(get_method("mlp"), {"data": "x", **given_})


# ---- memory and waiting ----------------------------------------------------------------------------------------
def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for read in (read_graph, read_events, open_regular, load_npy):
        with pytest.raises(UnreadableFileError, match="pipe"):
            read(tmp_path / "pipe.csv")
    with pytest.raises(UnreadableFileError, match="zero"):
        open_regular("/dev/zero")


def test_a_false_header_is_rejected(tmp_path: Path) -> None:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    (tmp_path / "x.npy").write_bytes(head.getvalue() + bytes(80))
    with pytest.raises(FormatError, match=r"x\.npy"):
        load_npy(tmp_path / "x.npy")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "array", [np.zeros((0, 3)), np.arange(6.0).reshape(2, 3), np.array("x"), np.array(["a", "bc"])]
)
def test_arrays_are_read_as_numpy_reads_them(tmp_path: Path, array: np.ndarray, order: str) -> None:
    array = np.asarray(array, order=order)
    np.save(tmp_path / "a.npy", array)
    np.savez_compressed(tmp_path / "a.npz", a=array)
    with Archive(tmp_path / "a.npz") as archive:
        found = [load_npy(tmp_path / "a.npy"), load_npy(tmp_path / "a.npy", mmap=True), archive["a"]]
    for one in found:
        assert one.dtype == array.dtype
        assert np.array_equal(one, array)


def test_compressed_files_have_a_limit(tmp_path: Path) -> None:
    text = "src,dst,t\n" + "1,2,3\n" * 5000
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert len(read_events(tmp_path / "e.csv.gz")) == 5000
    with pytest.raises(FormatError, match=r"e\.csv\.gz.*max_bytes"):
        read_events(tmp_path / "e.csv.gz", max_bytes="2kB")


@pytest.mark.parametrize("size", ["model.order", "model.quadrature_nodes"])
def test_sizes_are_checked_before_anything_is_computed(size: str) -> None:
    with pytest.raises(ConfigError, match=size):
        config_from(get_method("ctdg-ssm"), {"data": "x", size: 10_000})


@pytest.mark.skipif(sys.platform != "linux", reason="needs sparse files")
@pytest.mark.parametrize(
    ("name", "read"),
    [("metrics.jsonl", lambda path: RunFolder(path.parent).history()), ("TU.txt", read_tu), ("x.npy", load_npy)],
)
def test_a_sparse_file_is_as_large_as_what_is_stored(tmp_path: Path, name: str, read: Callable[[Path], Any]) -> None:
    path = tmp_path / name
    with path.open("wb") as file:
        if read is load_npy:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (1 << 36,)})
        file.truncate(1 << 40)
    with pytest.raises(FormatError, match=name):
        read(path)


def test_model_settings_must_match_the_weights(run: Path) -> None:
    change(run / "config.json", model=json.loads((run / "config.json").read_text())["model"] | {"dim": 900_000})
    with pytest.raises(CheckpointError, match=r"config\.json"):
        evaluate(run)


def test_yaml_aliases_are_rejected() -> None:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))
    with pytest.raises(yaml.YAMLError):
        load_yaml(bomb)
    assert load_yaml("a: {b: 1e-3}\nc: 'x * y & z'") == {"a": {"b": 1e-3}, "c": "x * y & z"}


def test_an_unexpected_exception_is_one_line(monkeypatch, capsys) -> None:
    from hopstate.cli import info

    for error, message in ((MemoryError(), "not enough memory"), (RecursionError(), "nested"), (OSError("x"), "x"),
                        (KeyError("y"), "unexpected KeyError")):  # fmt: skip
        monkeypatch.setattr(info, "run", lambda argv, error=error: (_ for _ in ()).throw(error))
        assert main(["info"]) == 1
        shown = capsys.readouterr().err
        assert shown.startswith("error: ")
        assert message in shown
        assert "Traceback" not in shown
        assert main(["info", "--debug"]) == 1
        assert "Traceback" in capsys.readouterr().err


# ---- read exactly or not at all ----------------------------------------------------------------------------------
@pytest.mark.parametrize("ids", ["9007199254740993.0", "18446744073709551615", "1.5"])
def test_ids_that_would_merge_are_rejected(tmp_path: Path, ids: str) -> None:
    (tmp_path / "e.csv").write_text(f"src,dst,t\n{ids},2,3\n1,2,4\n")
    with pytest.raises(DataError, match="line 2"):
        read_events(tmp_path / "e.csv")


def test_a_header_of_fewer_graphs_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "T.txt").write_text("1\n" + "2 0\n0 1 1\n0 1 0\n" * 2)
    with pytest.raises(FormatError, match="line 5"):
        read_tu(tmp_path / "T.txt")


texts = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0\r\n"), max_size=6)
ids = st.one_of(st.integers(0, 20), st.integers(-(2**63), 2**64), texts)
EVENTS = st.lists(st.tuples(ids, ids, st.one_of(st.integers(0, 99), st.floats(), texts)), min_size=1, max_size=8)
EDGES = st.lists(st.tuples(ids, ids), min_size=1, max_size=8)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(EVENTS)
def test_event_tables_are_read_exactly_or_rejected(tmp_path: Path, rows: list[tuple]) -> None:
    path = tmp_path / "e.csv"
    pd.DataFrame(rows, columns=["src", "dst", "t"]).to_csv(path, index=False)
    try:
        stream = read_events(path)
    except HopstateError as error:
        assert str(path) in str(error)
        return
    assert len(stream) == len(rows)
    names = np.arange(stream.num_nodes) if stream.node_ids is None else stream.node_ids.ids
    assert sorted(map(str, names[stream.src])) == sorted(str(row[0]).strip() for row in rows)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(EDGES)
def test_edge_tables_are_read_exactly_or_rejected(tmp_path: Path, rows: list[tuple]) -> None:
    path = tmp_path / "e.csv"
    pd.DataFrame(rows, columns=["source", "target"]).to_csv(path, index=False)
    try:
        graph = read_graph(path, undirected=False)
    except HopstateError as error:
        assert str(path) in str(error)
        return
    assert isinstance(graph, Graph)
    assert graph.num_edges == len({tuple(str(part).strip() for part in row) for row in rows})


# ---- pages and tables ------------------------------------------------------------------------------------------
COPY = "navigator.clipboard.writeText(this.previousElementSibling.textContent);this.textContent='copied'"


class Tags(HTMLParser):
    """Counts elements, and attributes that would execute code."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts, self.handlers = 0, 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        image = tag == "img" and not (dict(attrs)["src"] or "").startswith("data:image/svg+xml;base64,")
        self.scripts += tag in ("script", "iframe") or image
        self.handlers += sum(name.startswith("on") and value != COPY for name, value in attrs)


EVIL = [
    "<script>alert(1)</script>",
    "</style><script>x</script>",
    '" onload="x',
    "' onerror='x",
    "</script>",
    "<img src=x>",
]


@pytest.mark.parametrize("text", ["".join(EVIL), "]]><svg onload=x>\u202e<b>"])
def test_a_page_escapes_content_of_files(run: Path, tmp_path: Path, text: str) -> None:
    result = json.loads((run / "result.json").read_text())
    test = result["metrics"]["test"] | {text: 0.5}
    change(run / "result.json", metrics=result["metrics"] | {"test": test})
    change(run / "environment.json", gpu=text, processor=text, time=text, revision=text, versions={"hopstate": text})
    change(run / "config.json", data=f"{text}/{text}", method=text)
    line = {"recipe": text, "settings": text, "run": 0, "metrics": {"val": {text: 0.5}, "test": {text: 0.5}},
            "altered": {text: text}, "method": text, "data": text, "metric": text, "version": text, "gpu": text,
            "processor": text, "threads": 1, "cores": 1}  # fmt: skip
    (tmp_path / "results.jsonl").write_text(json.dumps(line) + "\n")
    page = write_report([run], tmp_path / "p.html", results_file=tmp_path / "results.jsonl", title=text)
    tags = Tags()
    tags.feed(page.read_text(encoding="utf-8"))
    assert (tags.scripts, tags.handlers) == (0, 0)


def test_tables_start_no_cell_with_a_formula_by_default(tmp_path: Path) -> None:
    ids_ = ["=1+1", "+cmd", "-x", "@SUM(A1)", "\t=1", " =1", "-5", "-1.5e3", "a=b", ""]
    table = pd.DataFrame({"id": ids_, "score": -0.5, "=name": ids_})
    write_table(table, tmp_path / "t.csv")
    write_table(table, tmp_path / "raw.csv", csv_escape=False)
    found = pd.read_csv(tmp_path / "t.csv", keep_default_na=False, dtype=str)
    assert found["id"].tolist() == ["'=1+1", "'+cmd", "'-x", "'@SUM(A1)", "'\t=1", "' =1", "-5", "-1.5e3", "a=b", ""]
    assert list(found.columns) == ["id", "score", "'=name"]
    assert set(found["score"]) == {"-0.5"}
    assert pd.read_csv(tmp_path / "raw.csv", keep_default_na=False, dtype=str)["id"].tolist() == ids_
    write_table(table, tmp_path / "t.parquet")
    assert pd.read_parquet(tmp_path / "t.parquet")["id"].tolist() == ids_


FORMULAS = ["=1+1", "+cmd", "@SUM(A1)", "-x"]


def test_tables_of_every_command_start_no_cell_with_a_formula(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOPSTATE_DATA", str(tmp_path / "cache"))
    ids = [*FORMULAS, "a", "b"]
    edges = pd.DataFrame({"source": ids, "target": ids[1:] + ids[:1]})
    edges.to_csv("edges.csv", index=False)
    pd.DataFrame({"id": ids, "x": range(6)}).to_csv("x.csv", index=False)
    split = ["train", "train", "val", "val", "test", "test"]
    pd.DataFrame({"id": ids, "label": ["=2", "b"] * 3, "split": split}).to_csv("y.csv", index=False)
    rows = [(ids[i % 3], ids[3 + i % 3], i) for i in range(40)]
    pd.DataFrame(rows, columns=["src", "dst", "t"]).to_csv("events.csv", index=False)
    pd.DataFrame([(ids[0], ids[3], 99)], columns=["src", "dst", "t"]).to_csv("later.csv", index=False)
    loop = ["--loop.epochs=1", "--loop.progress=false", "--loop.logger=none", "--loop.device=cpu"]
    nodes = ["--data=edges.csv", "--read.features=x.csv", "--read.labels=y.csv"]
    small = ["--model.dim=8", "--model.static=random", "--model.static_dim=4", "--model.time_dim=4"]
    assert main(["fit", "mlp", *nodes, "--model.dim=4", *loop, "--out=nodes"]) == 0
    assert main(["fit", "ctdg-ssm", "--data=events.csv", *small, *loop, "--out=links"]) == 0
    assert main(["predict", "nodes", "--out=nodes.csv"]) == 0
    assert main(["predict", "links", "--out=links.tsv"]) == 0
    assert main(["stream", "links", "--data=later.csv", "--out=scores.csv"]) == 0
    found = 0
    for name in ("nodes.csv", "links.tsv", "scores.csv"):
        table = pd.read_csv(name, sep="\t" if name.endswith("tsv") else ",", dtype=str, keep_default_na=False)
        cells = [cell for column in (table.columns, *(table[c] for c in table)) for cell in column]
        formulas = [c for c in cells if c.lstrip(" ").startswith(("=", "+", "-", "@")) and not _is_number(c)]
        assert not formulas, (name, formulas)
        found += sum(cell.startswith("'") for cell in cells)
    assert found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
