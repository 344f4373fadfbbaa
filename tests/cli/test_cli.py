"""The command line: fit, evaluate, predict, compare and inspect on files, and errors that name the problem."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import hopstate
from hopstate import predict, read_graph
from hopstate.cli.compare import numbers, show
from hopstate.cli.main import COMMANDS, main
from hopstate.cli.tune import show as show_search
from hopstate.errors import ConfigError
from hopstate.ops.threads import one_thread
from hopstate.runs.run import Run, fit_config
from hopstate.runs.tune import Search

pytestmark = pytest.mark.usefixtures("empty_folder")

Capture = pytest.CaptureFixture[str]

QUICK = ["--loop.epochs=2", "--loop.progress=false", "--loop.logger=none", "--loop.device=cpu"]
SMALL = [*QUICK, "--model.dim=16", "--tokens.num_hops=2", "--tokens.eigenvectors=2", "--batch_size=16"]


def write_tables(folder: Path) -> dict[str, Path]:
    """Write a small graph of two classes with string ids as three CSV files: edges, features, labels with a split."""
    rng = np.random.default_rng(0)
    names = np.array([f"user {i:02d}" for i in range(60)])
    side = np.arange(60) % 2
    pairs = rng.integers(0, 60, (400, 2))
    pairs = pairs[(side[pairs[:, 0]] == side[pairs[:, 1]]) | (rng.random(400) < 0.1)]
    paths = {key: folder / f"{key}.csv" for key in ("edges", "features", "labels")}
    pd.DataFrame({"source": names[pairs[:, 0]], "target": names[pairs[:, 1]]}).to_csv(paths["edges"], index=False)
    x = rng.normal(size=(60, 4)) + side[:, None]
    pd.DataFrame({"id": names, **{f"f{i}": x[:, i] for i in range(4)}}).to_csv(paths["features"], index=False)
    split = np.array(["train", "train", "val", "test"])[rng.permutation(60) % 4]
    frame = pd.DataFrame({"id": names, "label": np.array(["cat", "dog"])[side], "split": split})
    frame.to_csv(paths["labels"], index=False)
    return paths


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Path]:
    """Return the files of `write_tables`, for this test only."""
    return write_tables(tmp_path)


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run of mlp on files of `write_tables`; tests only read it."""
    home = tmp_path_factory.mktemp("mlp")
    assert main(["fit", "mlp", *options(write_tables(home)), *QUICK, "--model.dim=8", f"--out={home / 'run'}"]) == 0
    return home / "run"


@pytest.fixture
def messages(tmp_path: Path) -> Path:
    """Write a stream of replies between named people as a CSV file."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 20, 300)
    b = (a + rng.integers(1, 4, 300)) % 20
    flip = rng.random(300) < 0.3
    names = np.array([f"p{i}" for i in range(20)])
    frame = pd.DataFrame({"src": names[np.where(flip, b, a)], "dst": names[np.where(flip, a, b)]})
    frame["t"] = np.sort(rng.integers(0, 200, 300))
    frame.to_csv(tmp_path / "messages.csv", index=False)
    return tmp_path / "messages.csv"


def options(tables: dict[str, Path]) -> list[str]:
    return [f"--data={tables['edges']}", f"--read.features={tables['features']}", f"--read.labels={tables['labels']}"]


def result(run: str | Path) -> Any:
    return json.loads(Path(run, "result.json").read_text())


def test_from_a_csv_to_predictions_with_its_ids(tables: dict[str, Path], capsys: Capture) -> None:
    relative = ["--data=edges.csv", "--read.features=features.csv", "--read.labels=labels.csv"]
    assert main(["fit", "nagphormer", *relative, *SMALL, "--out=run"]) == 0
    assert json.loads(Path("run/config.json").read_text())["data"] == str(tables["edges"])
    capsys.readouterr()
    assert main(["evaluate", "run", "--split", "val"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == {"split": "val"} | result("run")["metrics"]["val"]
    for name, read in (("p.csv", pd.read_csv), ("p.parquet", pd.read_parquet)):
        assert main(["predict", "run", "--out", name]) == 0
        table = read(name)
        assert sorted(table["node"]) == [f"user {i:02d}" for i in range(60)]
        assert set(table["prediction"]) <= {"cat", "dog"}
        np.testing.assert_allclose(table["p_cat"] + table["p_dog"], 1, atol=1e-6)
        assert ((table["p_dog"] > table["p_cat"]) == (table["prediction"] == "dog")).all()
    labels = pd.read_csv(tables["labels"]).set_index("id")
    val = table[table["node"].map(labels["split"]) == "val"]
    assert (val["node"].map(labels["label"]) == val["prediction"]).mean() == pytest.approx(shown["accuracy"])


@pytest.mark.filterwarnings("default::hopstate.errors.HopstateWarning")
def test_changed_data_do_not_change_a_run(tables: dict[str, Path], capsys: Capture) -> None:
    fit = ["fit", "mlp", *options(tables), *QUICK, "--model.dim=8", "--out=run"]
    assert main(fit) == 0
    kept = {name: Path("run", name).read_bytes() for name in ("data.json", "split.npz", "result.json")}
    labels = pd.read_csv(tables["labels"])
    labels["split"] = labels["split"].map({"train": "test", "val": "val", "test": "train"})  # the labels stay
    labels.to_csv(tables["labels"], index=False)
    assert main([*fit, "--resume"]) == 1
    assert kept == {name: Path("run", name).read_bytes() for name in kept}
    capsys.readouterr()
    assert main(["evaluate", "run"]) == 0
    assert "warning:" in capsys.readouterr().err


def test_predict_on_other_files_keeps_their_ids(mlp: Path, tmp_path: Path) -> None:
    tables = write_tables(tmp_path)
    for name in ("edges", "features"):
        table = pd.read_csv(tables[name])
        ids = table.columns[: 2 if name == "edges" else 1]
        table[ids] = "new " + table[ids]
        table.to_csv(tables[name], index=False)
    data = [f"--data={tables['edges']}", "--read.features", str(tables["features"])]
    assert main(["predict", str(mlp), *data, "--out=p.csv"]) == 0
    table, graph = pd.read_csv("p.csv"), read_graph(str(tables["edges"]), features=str(tables["features"]))
    pd.testing.assert_frame_equal(table, predict(mlp, data=graph))
    assert table["node"].str.startswith("new user").all()
    own = predict(mlp).assign(node=lambda rows: "new " + rows["node"]).set_index("node")
    np.testing.assert_allclose(table["p_cat"], own.loc[table["node"], "p_cat"], rtol=1e-5, atol=1e-7)


def test_compare_over_seeds_keeps_finished_runs(tables: dict[str, Path], capsys: Capture) -> None:
    arguments = ["compare", "mlp,sage", f"--data={tables['edges']}", "--seeds=0-1", "--out=both", "--"]
    arguments += [*options(tables)[1:], *QUICK, "--model.dim=8", "--mlp.model.dim=4"]
    assert main(arguments) == 0
    rows = json.loads(Path("both/table.json").read_text())
    assert [row["method"] for row in rows] == ["mlp", "sage"]
    for row, dim in zip(rows, (4, 8), strict=True):
        runs = [f"both/{row['method']}-split0-seed{seed}" for seed in (0, 1)]
        for split in ("test", "val"):
            values = [result(run)["metrics"][split]["accuracy"] for run in runs]
            assert row["values"][split] == values
            assert row[f"{split}_mean"] == pytest.approx(np.mean(values))
            assert row[f"{split}_std"] == pytest.approx(np.std(values, ddof=1))
        assert row["runs"] == 2
        configs = [json.loads(Path(run, "config.json").read_text()) for run in runs]
        assert [config["loop"]["seed"] for config in configs] == [0, 1]
        assert configs[0]["model"]["dim"] == dim
    weights = Path("both/mlp-split0-seed1/model.safetensors")
    before = weights.stat().st_mtime_ns
    assert main(arguments) == 0
    assert weights.stat().st_mtime_ns == before
    kept = Path("both/mlp-split0-seed0/result.json").read_bytes()
    features = pd.read_csv(tables["features"])
    features["f0"] += 1
    features.to_csv(tables["features"], index=False)
    capsys.readouterr()
    assert main(arguments) == 1
    assert "both/mlp-split0-seed0" in capsys.readouterr().err
    assert Path("both/mlp-split0-seed0/result.json").read_bytes() == kept


def test_trials_are_shown_like_other_results(capsys: pytest.CaptureFixture[str]) -> None:
    trial = {"trial": 0, "value": 0.50294, "seconds": 1.0, "loop.optim.lr": 0.0023157980, "error": ""}
    search = Search(Path("search"), "roc_auc", "max", 0.50294, {"loop.optim.lr": 0.0023157980}, [trial])
    show_search(search, "mlp")
    out = capsys.readouterr().out
    assert "ROC AUC in percent" in out
    assert "50.29" in out
    assert "loop.optim.lr=0.002316" in out


def shown_row(method: str, test: list[float], val: list[float], metric: str = "accuracy") -> dict[str, Any]:
    """Return a row of a table of `compare`."""
    means = {"test_mean": sum(test) / len(test), "test_std": 0.125, "val_mean": sum(val) / len(val), "val_std": 0.1}
    row = {"method": method, "metric": metric, "runs": len(test), "seconds_per_epoch": 0.1, "parameters": 5}
    return {**row, "kinds": {}, **means, "values": {"test": test, "val": val}}


def test_compare_tests_the_methods_pair_by_pair(capsys: Capture) -> None:
    show([shown_row("one", [0.5, 0.6, 0.7], [0.6] * 3), shown_row("two", [0.4, 0.5, 0.9], [0.7] * 3)], "made")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("two - one")]
    assert "10.00 ± 0.00" in lines[0]
    assert "0.00 ± 10.00" in lines[1]
    assert "p = 1" in lines[1]


def test_tables_are_split_by_metric_and_sorted_by_the_mean(capsys: Capture) -> None:
    ap = "average_precision"
    rows = [shown_row("links", [0.8], [0.5], ap), shown_row("labels", [0.9], [0.5], "roc_auc")]
    show([*rows, shown_row("more-links", [0.85], [0.5], ap)], "stream")
    first, second = capsys.readouterr().out.split("stream: ROC AUC")
    assert first.index("more-links") < first.index("│ links")
    assert "labels" not in first
    assert "labels" in second
    means = {"worst": 0.75, "undefined": float("nan"), "best": 0.25}
    show([shown_row(name, [mean], [mean], "mae") for name, mean in means.items()], "molecules")
    printed = capsys.readouterr().out
    assert "0.2500 ± 0.1250" in printed
    assert printed.index("best") < printed.index("worst") < printed.index("undefined")


def test_compare_continues_after_a_run_that_diverges(tables: dict[str, Path], capsys: Capture) -> None:
    arguments = ["compare", "gin,mlp", f"--data={tables['edges']}", "--out=both", "--json", "--"]
    arguments += [f"--read.features={tables['features']}", f"--read.labels={tables['labels']}"]
    arguments += [*QUICK, "--model.dim=16", "--gin.loop.epochs=3", "--gin.model.norm=none", "--gin.loop.optim.lr=1e30"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in found["methods"]] == ["mlp"]
    assert [(run["method"], run["split"], run["seed"]) for run in found["failed"]] == [("gin", 0, 0)]
    assert found["failed"][0]["error"]


def test_compare_continues_after_any_error_of_a_run(
    tables: dict[str, Path], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hopstate.runs import run

    fit_config = run.fit_config

    def failing(method: Any, *arguments: Any, **options: Any) -> Any:
        if method.name == "gin":
            raise RuntimeError("singular matrix")
        return fit_config(method, *arguments, **options)

    monkeypatch.setattr("hopstate.runs.compare.fit_config", failing)
    words = [f"--data={tables['edges']}", "--out=both", "--json", "--", *options(tables)[1:], *QUICK, "--model.dim=8"]
    assert main(["compare", "gin,mlp", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in found["methods"]] == ["mlp"]
    assert "singular matrix" in found["failed"][0]["error"]


def test_compare_adds_baselines_and_names_methods_below_them(messages: Path, capsys: Capture) -> None:
    settings = ["--graphmixer.model.num_links=3", "--graphmixer.model.dim=8", *QUICK, "--graphmixer.loop.epochs=1"]
    assert main(["compare", "graphmixer,recency", f"--data={messages}", "--out=both", "--", *settings]) == 0
    rows = {row["method"]: row for row in json.loads(Path("both/table.json").read_text())}
    assert list(rows) == ["graphmixer", "recency", "edgebank"]
    assert rows["edgebank"]["baseline"]
    own, metrics = rows["graphmixer"]["kinds"], result("both/graphmixer-split0-seed0")["metrics"]["test"]
    assert set(own) >= {"average_precision", "historical_average_precision", "inductive_average_precision"}
    assert {metric: mean for metric, (mean, _) in own.items()} == pytest.approx({m: metrics[m] for m in own})
    for name, row in rows.items():
        for baseline in {"recency", "edgebank"} - {name}:
            below = [m for m, (mean, _) in row["kinds"].items() if mean <= rows[baseline]["kinds"].get(m, [-1])[0]]
            assert (baseline in row["not_outperformed"]) == bool(below)
        assert name not in row["not_outperformed"]
    assert "edgebank" in capsys.readouterr().out


def test_compare_rejects_repeated_seeds_and_splits_of_a_stream(messages: Path, capsys: Capture) -> None:
    assert numbers("0,0-1,1") == [0, 1]
    assert numbers("0,2,5-7") == [0, 2, 5, 6, 7]
    for text in ("a-b", "5-3"):
        with pytest.raises(ConfigError, match=text):
            numbers(text)
    assert main(["compare", "recency", f"--data={messages}", "--splits=0-2", "--out=both"]) == 2
    assert "--seeds 0-2" in capsys.readouterr().err
    assert not Path("both").exists()


def test_a_rejected_fit_leaves_its_folder_free(tables: dict[str, Path], capsys: Capture) -> None:
    fit = ["fit", "mlp", *options(tables), *QUICK, "--model.dim=8", "--out=run"]
    assert main([*fit, "--loop.device=abacus"]) == 2
    assert not Path("run").exists()
    assert main([*fit, "--model.num_layers=1"]) == 0
    assert json.loads(Path("run/config.json").read_text())["model"]["num_layers"] == 1
    capsys.readouterr()
    assert main(fit) == 2
    assert "--resume" in capsys.readouterr().err


def test_config_file_print_config_and_flags_agree(tables: dict[str, Path], capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["fit", "nagphormer", *options(tables), *SMALL, "--print_config"])
    printed = capsys.readouterr().out
    Path("run.yaml").write_text(printed)
    assert yaml.safe_load(printed)["tokens"]["num_hops"] == 2
    assert main(["fit", "nagphormer", "--config=run.yaml", "--loop.epochs=1", "--out=run"]) == 0
    assert result("run")["epochs"] == 1
    assert json.loads(Path("run/config.json").read_text())["tokens"]["num_hops"] == 2


@pytest.mark.parametrize("given", [["--batching", "cluster"], ["--batching=cluster"], ["--batching.kind", "cluster"]])
def test_an_option_group_is_named_by_its_kind(given: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["fit", "gcn", "--data=x", "--split", "random", *given, "--print_config"])
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["batching"]["kind"] == "cluster"
    assert config["split"]["kind"] == "random"
    assert main(["fit", "gcn", "--data=x", "--batching", "clustre"]) == 2
    assert "batching.kind" in capsys.readouterr().err


def test_user_errors_are_named(capsys: Capture) -> None:
    for arguments, status, named in (
        (["fti"], 2, "'fit'"),
        (["fit", "nagformer", "--data=x"], 2, "'nagphormer'"),
        (["fit", "nagphormer", "--data=x", "--tokens.hops=3"], 2, "'--tokens.num_hops'"),
        (["fit", "nagphormer", "--data=nowhere.csv"], 1, "nowhere.csv"),
        (["fit", "nagphormer"], 2, "--data"),
        (["fit", "--data=x"], 2, "method"),
        (["tune", "--data=x"], 2, "method"),
        (["fit", "nagphormer", "--data=x", "--resume"], 2, "--out"),
        (["evaluate", "nowhere"], 1, "nowhere"),
        (["predict", "nowhere", "--out", "p.csv"], 1, "nowhere"),
        (["fit", "gcn", "--data", "absent.csv", "--task", "link", "--out", "s_link"], 1, "absent.csv"),
    ):
        assert main(arguments) == status, arguments
        assert named in capsys.readouterr().err, arguments


def test_mismatched_data_of_a_run_are_named(mlp: Path, capsys: Capture) -> None:
    for arguments, status, named in (
        (["predict", str(mlp), "--out", "p.xlsx"], 1, "p.xlsx"),
        (["evaluate", str(mlp), "--data", "minesweeper-generated"], 1, "7"),  # features, not 4
        (["check-leak", str(mlp)], 2, str(mlp)),  # no times
    ):
        assert main(arguments) == status, arguments
        assert named in capsys.readouterr().err, arguments
    assert not Path("p.xlsx").exists()


@pytest.mark.parametrize("words", [["compare", "recency", "--data", "x"], ["reproduce", "recency/uci"]])
def test_settings_before_the_dashes_apply_after_them(words: list[str], capsys: Capture) -> None:
    assert main([*words, "--read.source_column", "person"]) == 2
    assert "-- --read.source_column person" in capsys.readouterr().err
    assert main([*words, "--seedz", "2"]) == 2  # no setting
    assert "-- --seedz" not in capsys.readouterr().err


def test_version_datasets_and_commands(capsys: Capture) -> None:
    assert main([]) == 0
    assert set(COMMANDS) <= set(capsys.readouterr().out.split())
    assert main(["--version"]) == 0
    assert hopstate.__version__ in capsys.readouterr().out
    assert main(["datasets"]) == 0
    assert "minesweeper" in capsys.readouterr().out
    for name, inside, outside in (("cora", "cora", "corafull"), ("orafull", "corafull", "minesweeper")):
        assert main(["datasets", name]) == 0
        printed = capsys.readouterr().out
        assert inside in printed
        assert outside not in printed
    assert main(["datasets", "minesweepr"]) == 1
    assert "'minesweeper'" in capsys.readouterr().out


def test_temporal_methods_from_a_csv_to_scores_that_see_no_future(messages: Path, capsys: Capture) -> None:
    assert main(["fit", "recency", f"--data={messages}", *QUICK, "--out=run"]) == 0
    printed = capsys.readouterr().out
    files = [word for word in re.split(r"[\s(),]+", printed) if re.search(r"\.(json|csv|png|safetensors)$", word)]
    assert "result.json" in files
    assert all(Path("run", name).is_file() for name in files)
    names = {"average_precision", "historical_average_precision", "inductive_roc_auc"}
    assert names <= result("run")["metrics"]["test"].keys()
    assert len(list(Path("run/negatives").glob("*.npz"))) >= 4
    assert main(["predict", "run", "--split", "test", "--out", "p.csv"]) == 0
    table, events = pd.read_csv("p.csv"), pd.read_csv(messages)
    assert table["src"].tolist() == events["src"].iloc[-len(table) :].tolist()
    assert len(table) == result("run")["metrics"]["test"]["num_events"] < len(events)
    assert main(["check-leak", "run", "--times", "2", "--queries", "8"]) == 0


def test_inspect_distinguishes_streams_and_graphs(
    tables: dict[str, Path], messages: Path, tmp_path: Path, capsys: Capture
) -> None:
    def kind(*words: str) -> str:
        capsys.readouterr()
        assert main(["inspect", "--json", *words]) == 0
        title = json.loads(capsys.readouterr().out)["card"]["title"]
        return title.partition(" (")[2].partition(",")[0]

    assert kind(str(messages), "--plot", "card.png") == "event stream"
    assert Path("card.png").read_bytes()[:4] == b"\x89PNG"
    assert kind(str(tables["edges"])) == "graph"
    (tmp_path / "snap.txt").write_text("".join(f"{i} {(7 * i) % 20}\n" for i in range(20)))
    assert kind(str(tmp_path / "snap.txt")) == "graph"


def test_inspect_reports_faulty_events_as_events(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "faulty.csv"
    for text, named in (
        ("src,dst,t,kind\n0,1,5,add\n0,1,6,delete\n0,1,7,delete\n", "event 2"),
        ("src,dst,t,kind\n0,1,5,add\n0,1,soon,add\n", "'soon'"),
        ("user,item,date\n0,1,11/26/2026\n0,2,11/27/2026\n", "'11/26/2026'"),
    ):
        path.write_text(text)
        assert main(["inspect", str(path)]) == 1
        assert named in capsys.readouterr().err


def test_inspect_names_the_nearest_option_of_graphs_and_of_events(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "events.csv"
    path.write_text("src,dst,t\n0,1,soon\n1,2,later\n")
    for typed, meant in (("time_colum", "time_column"), ("id_colum", "id_column"), ("edge-columns", "edge_columns")):
        assert main(["inspect", str(path), f"--read.{typed}", "t"]) == 2
        assert f"'--read.{meant}'" in capsys.readouterr().err
    assert main(["inspect", str(path), "--read.nonsense=1"]) == 2
    assert "--read.nonsense" in capsys.readouterr().err
    assert main(["inspect", str(path), "--read.time_column", "t"]) == 1
    assert "'t'" in capsys.readouterr().err  # read as events, not as a graph


def test_prepare_counts_rows_in_one_line_every_few_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    pytest.importorskip("duckdb")
    (tmp_path / "events").mkdir()
    for part in range(5):
        rows = pd.DataFrame({"source": [0, 1], "target": [1, 2], "time": [2 * part, 2 * part + 1]})
        rows.to_csv(tmp_path / "events" / f"{part}.csv", index=False)
    for seconds, count in ((1e9, 1), (0.0, 5)):
        monkeypatch.setattr("hopstate.cli.prepare.SECONDS", seconds)
        assert main(["prepare", str(tmp_path / "events"), f"--out={tmp_path / str(count)}"]) == 0
        progress = capsys.readouterr().err
        assert progress.count("rows read") == count
        assert "sorting the events" in progress


def test_an_interrupted_fit_or_comparison_ends_with_130(
    messages: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def interrupted(*given: Any, **named: Any) -> Run:
        return replace(fit_config(*given, **named), interrupted=True)

    monkeypatch.setattr("hopstate.runs.run.fit_config", interrupted)
    monkeypatch.setattr("hopstate.runs.compare.fit_config", interrupted)
    assert main(["fit", "recency", f"--data={messages}", *QUICK, "--out=run"]) == 130
    assert "--resume --out run" in capsys.readouterr().err
    assert main(["compare", "recency", f"--data={messages}", "--out=both", "--", *QUICK]) == 130
    assert "--out both" in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_in_the_shell_then_resume_equals_one_run(tables: dict[str, Path], tmp_path: Path) -> None:
    settings = [a for a in SMALL if "epochs" not in a]
    base = [sys.executable, "-m", "hopstate.cli.main", "fit", "nagphormer", *options(tables), *settings]
    environment = {**os.environ, "HOPSTATE_DATA": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    cut = [*base, "--loop.epochs=4000", "--loop.patience=null", "--out=cut"]
    process = subprocess.Popen(cut, env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (
        Path("cut/metrics.jsonl").exists() and Path("cut/metrics.jsonl").stat().st_size
    ):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 130, errors
    assert "--resume --out cut" in errors
    done = len(Path("cut/metrics.jsonl").read_text().splitlines())
    on = [*base[3:], "--loop.patience=null", f"--loop.epochs={done + 5}"]
    with one_thread():  # the restarted state is read from the files, so no further process is needed
        assert main([*on, "--out=cut", "--resume"]) == main([*on, "--out=whole"]) == 0
    keep = ("best_epoch", "epochs", "metrics")
    cut_result, whole = (json.loads(Path(d, "result.json").read_text()) for d in ("cut", "whole"))
    assert {k: cut_result[k] for k in keep} == {k: whole[k] for k in keep}
