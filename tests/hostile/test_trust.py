"""A foreign run folder runs no code, opens no URL, writes no other files and uses no disproportionate memory."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hopstate import evaluate, fit
from hopstate.cli.main import main
from hopstate.data.readers.read_graph import read_graph
from hopstate.errors import CheckpointError, ConfigError, HopstateError, StorageError
from hopstate.serving.live import LiveRun

LOOP = {"epochs": 1, "progress": False, "logger": "none", "device": "cpu"}


class Evil:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def change(run: Path, **values: object) -> None:
    """Change settings in a run's config.json; a dot is written as two underscores."""
    config = json.loads((run / "config.json").read_text())
    for name, value in values.items():
        *groups, last = name.split("__")
        place = config
        for group in groups:
            place = place[group]
        place[last] = value
    (run / "config.json").write_text(json.dumps(config))


# ---- what a run folder may name ------------------------------------------------------------------------------------
ADDRESSES = (
    "pyg:Planetoid:Cora",
    "pyg:Planetoid:Cora?root=http://127.0.0.1:9",
    "ogb:ogbn-arxiv",
    "citeseer",  # in the catalogue, but without a published checksum
    "postgresql://host/db?table=t",
    "https://host/g.npz",
    "\\\\host\\share\\g.npz",
    "//host/share/g.npz",
    "/proc/self/environ",
    "/dev/zero",
)


@pytest.mark.parametrize("source", ADDRESSES)
def test_data_other_than_plain_files_must_be_given_again(run: Path, source: str, capsys) -> None:
    own = json.loads((run / "config.json").read_text())["data"]
    change(run, data=source)
    with pytest.raises(ConfigError, match=r"config\.json"):
        evaluate(run)
    assert main(["fit", "mlp", "--resume", f"--out={run}"]) == 2
    assert "config.json" in capsys.readouterr().err
    assert evaluate(run, own)


@pytest.mark.parametrize("name", ["data", "read", "loop"])
def test_a_setting_of_another_type_is_rejected_by_name(run: Path, name: str) -> None:
    change(run, **{name: None})
    with pytest.raises(CheckpointError, match=rf"config\.json.*{name}"):
        evaluate(run)


def test_a_link_to_a_device_is_not_a_plain_file(run: Path, tmp_path: Path) -> None:
    (tmp_path / "g.npz").symlink_to("/proc/self/environ")
    change(run, data=str(tmp_path / "g.npz"))
    with pytest.raises(ConfigError, match=r"config\.json"):
        evaluate(run)


@pytest.mark.filterwarnings("ignore:sbm has changed")
def test_generated_datasets_may_be_named(run: Path) -> None:
    change(run, data="sbm")
    with pytest.raises(HopstateError, match="features"):  # the settings were read and name another one
        evaluate(run)


@pytest.mark.parametrize("setting", ["read__features", "read__labels", "link__file"])
def test_settings_files_must_be_plain_files_too(run: Path, setting: str) -> None:
    change(run, **{setting: "\\\\host\\share\\x.csv"})
    with pytest.raises(ConfigError, match=setting.replace("__", ".")):
        evaluate(run)


@pytest.mark.parametrize(("setting", "value"), [("read__num_nodes", 10**9), ("read__max_bytes", "1TiB")])
def test_settings_allocate_no_more_memory_than_files_justify(run: Path, setting: str, value: object) -> None:
    change(run, **{setting: value})
    with pytest.raises(ConfigError, match=setting.replace("__", ".")):
        evaluate(run)
    with pytest.raises(ConfigError, match=setting.replace("__", ".")):
        fit("mlp", json.loads((run / "config.json").read_text())["data"], out=run, resume=True)


@pytest.mark.parametrize("logger", ["wandb", "tensorboard,mlflow"])
def test_network_loggers_must_be_given_again(run: Path, logger: str, capsys, monkeypatch) -> None:
    names: list[str] = []
    monkeypatch.setattr("hopstate.training.loggers._installed", lambda module: True)
    monkeypatch.setattr("hopstate.training.loggers.Loggers.__init__", lambda self, given, *rest: names.extend(given))
    monkeypatch.setattr("hopstate.training.loggers.Loggers._call", lambda self, *rest: None)
    change(run, loop__logger=logger, loop__epochs=2)
    assert main(["fit", "mlp", "--resume", f"--out={run}"]) == 2
    assert "--loop.logger" in capsys.readouterr().err
    assert not names
    assert main(["fit", "mlp", "--resume", f"--out={run}", f"--loop.logger={logger}"]) == 0
    assert names == logger.split(",")


# ---- torch-geometric -------------------------------------------------------------------------------------------------
def planetoid(root: Path, mark: Path, *, without: str = "") -> Path:
    """Write raw files of Planetoid that are hostile pickles."""
    raw = root / "Cora" / "raw"
    raw.mkdir(parents=True)
    for name in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"):
        if name != without:
            (raw / f"ind.cora.{name}").write_bytes(pickle.dumps(Evil(mark)))
    return raw


@pytest.mark.parametrize("without", ["", "graph"])
def test_existing_raw_files_are_not_unpickled(tmp_path: Path, monkeypatch, without: str) -> None:
    from torch_geometric.datasets import Planetoid

    raw = planetoid(tmp_path, tmp_path / "ran", without=without)
    fetched = []

    def download(self: Any) -> None:  # like torch-geometric's, which keeps existing files
        fetched.append(self.raw_dir)
        (raw / f"ind.cora.{without}").write_bytes(pickle.dumps({}))

    monkeypatch.setattr(Planetoid, "download", download)
    with pytest.raises(HopstateError, match="Planetoid"):
        read_graph(f"pyg:Planetoid:Cora?root={tmp_path}")
    assert not (tmp_path / "ran").exists()
    assert len(fetched) == bool(without)


def test_downloaded_raw_files_are_unpickled(tmp_path: Path, monkeypatch) -> None:
    from torch_geometric.datasets import Planetoid

    def download(self: Any) -> None:
        shutil.rmtree(Path(self.raw_dir).parent)
        planetoid(tmp_path, tmp_path / "ran")

    monkeypatch.setattr(Planetoid, "download", download)
    with pytest.raises(Exception, match=r"."):  # they are not Planetoid data
        read_graph(f"pyg:Planetoid:Cora?root={tmp_path}")
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("root", ["file://{here}", "http://127.0.0.1:9", "memory://x", "simplecache::file://{here}"])
def test_a_dataset_root_must_be_a_folder(tmp_path: Path, root: str) -> None:
    planetoid(tmp_path, tmp_path / "ran")
    with pytest.raises(HopstateError, match="Planetoid"):
        read_graph(f"pyg:Planetoid:Cora?root={root.format(here=tmp_path)}")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("legacy", [True, False])
def test_processed_files_are_not_unpickled(tmp_path: Path, legacy: bool) -> None:
    raw = planetoid(tmp_path, tmp_path / "ran")
    (raw.parent / "processed").mkdir()
    torch.save(
        ({"x": Evil(tmp_path / "ran")}, None, dict),
        raw.parent / "processed" / "data.pt",
        _use_new_zipfile_serialization=not legacy,
    )
    with pytest.raises(HopstateError, match="Planetoid"):
        read_graph(f"pyg:Planetoid:Cora?root={tmp_path}")
    assert not (tmp_path / "ran").exists()


# ---- links -----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def temporal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("temporal")
    events(80).to_csv(home / "events.csv", index=False)
    config = {"loop": LOOP, "model": {"dim": 4}, "evaluation.strategies": ["random"]}
    return fit("ctdg-ssm", home / "events.csv", out=home / "run", config=config).path


def events(count: int, start: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(start)
    pairs = {"src": rng.integers(0, 6, count), "dst": rng.integers(6, 12, count)}
    return pd.DataFrame({**pairs, "t": start + np.arange(count)})


COMMANDS = (
    ["evaluate", "run"],
    ["stream", "run", "--data=later.csv", "--out=scores.csv"],
    ["score", "run", "--pairs=1,7"],
    ["explain", "run", "--pair=1,7"],
    ["report", "run", "--out=page.html"],
    ["inspect", "run"],
    ["fit", "ctdg-ssm", "--resume", "--out=run"],
    ["ensemble", "run", "run", "--out=both"],
)


@pytest.mark.parametrize("place", ["state", "live", "negatives", "live/state/copies", ".lock", "metrics.jsonl"])
def test_links_in_a_run_folder_are_rejected(temporal: Path, tmp_path: Path, monkeypatch, capsys, place: str) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(temporal, "run")
    events(5, 100).to_csv("later.csv", index=False)
    victim = tmp_path / "victim"
    if "." in place:
        victim.write_text("work")
    else:
        victim.mkdir()
        (victim / "thesis.docx").write_text("work")
    link = tmp_path / "run" / place
    link.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(link) if link.is_dir() else link.unlink(missing_ok=True)
    link.symlink_to(victim)
    for command in COMMANDS:
        assert main(command) in (1, 2), command
        assert place in capsys.readouterr().err, command
    with pytest.raises(StorageError, match=place):
        LiveRun("run")
    assert victim.read_text() == "work" if "." in place else [path.name for path in victim.iterdir()] == ["thesis.docx"]


def test_a_search_writes_into_its_own_folder(run: Path, tmp_path: Path, capsys) -> None:
    data = json.loads((run / "config.json").read_text())["data"]
    search = ["tune", "mlp", f"--data={data}", "--trials=1", "--space=model.dim=4,8", "--out=search"]
    search += [f"--loop.{name}={str(value).lower()}" for name, value in LOOP.items()]
    assert main(search) == 0
    trial = next(path for path in (tmp_path / "search").iterdir() if path.is_dir())
    trial.rename(tmp_path / "elsewhere")
    trial.symlink_to(tmp_path / "elsewhere")
    capsys.readouterr()
    assert main(search) == 1
    assert trial.name in capsys.readouterr().err


def test_a_rejected_run_leaves_no_folder(temporal: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.csv").write_text("src,dst,t\n1,2\n1,2,x\n")
    before = sorted(tmp_path.rglob("*"))
    stream = ["stream", str(temporal), "--data=broken.csv"]
    for command in (
        [*stream, "--save=new/state", "--out=scores.csv"],
        [*stream, "--save=state", "--out=new/folder/scores.csv"],
        ["fit", "recency", "--data=broken.csv", "--out=new/run"],
        ["fit", "recency", "--data=broken.csv"],
        ["tune", "recency", "--data=broken.csv", "--out=new/search"],
        ["predict", str(temporal), "--data=broken.csv", "--out=new/p.csv"],
        ["score", str(temporal), "--pairs=broken.csv", "--out=new/p.csv"],
        ["report", "broken.csv", "--out=new/page.html"],
        ["ensemble", str(temporal), "missing", "--out=new/run"],
        ["prepare", "broken.csv", "--out=new/store"],
    ):
        assert main(command) in (1, 2), command
        assert sorted(tmp_path.rglob("*")) == before, command


# ---- the terminal ----------------------------------------------------------------------------------------------------
ESCAPES = "\x1b]0;title\x07\x1b[2J\x9b31m\u202egnp.exe\u2066\b[bold]:smile:"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Terminal(io.StringIO):
    """A text buffer that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [False, True])
def test_text_of_files_cannot_control_a_terminal(temporal: Path, tmp_path: Path, monkeypatch, terminal: bool):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(temporal, "run")
    named = events(80).astype({"src": str, "dst": str})
    named["dst"] = ESCAPES + named["dst"]
    named.assign(**{ESCAPES: named["t"].astype(float)}).to_parquet("e.parquet")
    change(Path("run"), data=ESCAPES)
    facts = json.loads(Path("run/data.json").read_text())
    Path("run/data.json").write_text(json.dumps(facts | {"notes": [f"read as: {ESCAPES}"], "time_unit": ESCAPES}))
    loop = [f"--loop.{name}={str(value).lower()}" for name, value in LOOP.items() if name != "progress"]
    monkeypatch.setenv("TERM", "xterm")
    for command in (
        ["inspect", "e.parquet", "--kind=events"],
        ["inspect", "run"],
        ["evaluate", "run"],
        ["stream", "run", "--data=e.parquet", "--out=s.csv"],
        ["fit", "recency", "--data=e.parquet", *loop, "--out=named"],
        ["rank", "named", "--source=1"],
        ["explain", "named", f"--pair=1,{named['dst'].iloc[-1]}"],
        ["score", "named", f"--pairs=1,{ESCAPES}"],
    ):
        out, err = (Terminal() if terminal else io.StringIO() for _ in range(2))
        monkeypatch.setattr("sys.stdout", out)
        monkeypatch.setattr("sys.stderr", err)
        main(command)
        text = out.getvalue() + err.getvalue()
        colors = re.compile("\x1b\\[(?:[0-9;]*m|\\?25[lh]|[0-9]*[AK])|\r") if terminal else re.compile("(?!)")
        assert not CONTROL.search(colors.sub("", text)), (command, text)
        assert "\N{SMILING FACE WITH OPEN MOUTH AND SMILING EYES}" not in text
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    assert main(["inspect", "e.parquet", "--kind=events", "--json"]) == 0
    assert json.loads(out.getvalue())["data"] == "e.parquet"


# ---- JSON files of a run ---------------------------------------------------------------------------------------------
def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a JSON tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


json_values = st.one_of(
    st.none(), st.booleans(), st.sampled_from([-1, 0, 1, 10**9, 10**15, 10**30, 0.5, -1e300, "", "x", ESCAPES]),
    st.sampled_from([[], [None], [-1], [10**9], [[]], {}, {"a": 1}]),
)  # fmt: skip
QUESTIONS = (*COMMANDS[:6], ["predict", "run", "--data=later.csv", "--out=p.csv"], ["evaluate", "run", "--data=e.csv"])


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_value_of_a_runs_json_files_is_read_or_rejected(
    temporal: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("json")
    run = Path(shutil.copytree(temporal, folder / "run"))
    events(80).to_csv(folder / "e.csv", index=False)
    events(5, 100).to_csv(folder / "later.csv", index=False)
    path = data.draw(st.sampled_from(sorted(run.rglob("*.json"))))
    tree = json.loads(path.read_text())
    *groups, last = data.draw(st.sampled_from(list(places(tree))))
    place = tree
    for key in groups:
        place = place[key]
    place[last] = data.draw(json_values)
    path.write_text(json.dumps(tree))
    command = data.draw(st.sampled_from(QUESTIONS))
    err = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stderr(err), contextlib.redirect_stdout(err):
        code = main(command)
    output = err.getvalue()
    assert code in (0, 1, 2)
    setting = [last] if path.name == "config.json" and isinstance(last, str) and len(last) > 2 else []
    assert not code or any(name in output for name in ("run", "e.csv", "later.csv", *setting)), output
    assert "unexpected" not in output, (path, groups, last, output)
    assert "not enough memory" not in output
