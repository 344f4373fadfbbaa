"""The command line as a new user meets it: fit, evaluate, predict, compare on files; errors that say what to do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from hopstate.cli.compare import numbers, show
from hopstate.cli.main import COMMANDS, main
from hopstate.errors import ConfigError
from hopstate.ops.threads import one_thread
from hopstate.testing.asserts import F64_SOLVED

QUICK = ["--loop.epochs=3", "--loop.progress=false", "--loop.tensorboard=no", "--loop.device=cpu"]
SMALL = [*QUICK, "--model.dim=16", "--tokens.num_hops=2", "--tokens.eigenvectors=2", "--batch_size=16"]


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOPSTATE_DATA", str(tmp_path / "cache"))


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Path]:
    """A small two-class graph with string ids as three CSV files: edges, features, labels with a split."""
    rng = np.random.default_rng(0)
    names = np.array([f"user {i:02d}" for i in range(60)])
    side = np.arange(60) % 2
    pairs = rng.integers(0, 60, (400, 2))
    pairs = pairs[(side[pairs[:, 0]] == side[pairs[:, 1]]) | (rng.random(400) < 0.1)]
    paths = {key: tmp_path / f"{key}.csv" for key in ("edges", "features", "labels")}
    pd.DataFrame({"source": names[pairs[:, 0]], "target": names[pairs[:, 1]]}).to_csv(paths["edges"], index=False)
    x = rng.normal(size=(60, 4)) + side[:, None]
    pd.DataFrame({"id": names, **{f"f{i}": x[:, i] for i in range(4)}}).to_csv(paths["features"], index=False)
    split = np.array(["train", "train", "val", "test"])[rng.permutation(60) % 4]
    frame = pd.DataFrame({"id": names, "label": np.array(["cat", "dog"])[side], "split": split})
    frame.to_csv(paths["labels"], index=False)
    return paths


def options(tables: dict[str, Path]) -> list[str]:
    return [f"--data={tables['edges']}", f"--read.features={tables['features']}", f"--read.labels={tables['labels']}"]


def test_from_a_users_csv_to_predictions_with_their_own_ids(tables: dict[str, Path], capsys) -> None:
    relative = ["--data=edges.csv", "--read.features=features.csv", "--read.labels=labels.csv"]
    assert main(["fit", "nagphormer", *relative, *SMALL, "--out=run"]) == 0
    assert json.loads(Path("run/config.json").read_text())["data"] == str(tables["edges"])
    assert "run folder: run" in capsys.readouterr().out
    assert main(["evaluate", "run", "--split", "val"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["accuracy"] == json.loads(Path("run/result.json").read_text())["metrics"]["val"]["accuracy"]
    for name, read in (("p.csv", pd.read_csv), ("p.parquet", pd.read_parquet)):
        assert main(["predict", "run", "--out", name]) == 0
        table = read(name)
        assert table["node"].str.startswith("user ").all()
        assert set(table["prediction"]) <= {"cat", "dog"}
        np.testing.assert_allclose(table["p_cat"] + table["p_dog"], 1, atol=F64_SOLVED)
        assert len(table) == 60


@pytest.mark.filterwarnings("default::hopstate.errors.HopstateWarning")
def test_changed_data_are_told_and_leave_the_run_as_it_was(tables: dict[str, Path], capsys) -> None:
    fit = ["fit", "mlp", *options(tables), *QUICK, "--model.dim=8", "--out=run"]
    assert main(fit) == 0
    kept = {name: Path("run", name).read_bytes() for name in ("data.json", "split.npz", "result.json")}
    labels = pd.read_csv(tables["labels"])
    labels["split"] = labels["split"].map({"train": "test", "val": "val", "test": "train"})  # the labels stay
    labels.to_csv(tables["labels"], index=False)
    capsys.readouterr()
    assert main([*fit, "--resume"]) == 1
    assert "the data have changed" in capsys.readouterr().err
    assert kept == {name: Path("run", name).read_bytes() for name in kept}
    assert main(["evaluate", "run"]) == 0
    assert "training nodes may now count as test" in capsys.readouterr().err


def test_predict_on_another_file_with_its_own_ids(tables: dict[str, Path], tmp_path: Path) -> None:
    assert main(["fit", "mlp", *options(tables), *QUICK, "--model.dim=8", "--out=run"]) == 0
    features = pd.read_csv(tables["features"])
    features["id"] = "new " + features["id"]
    edges = ("new " + pd.read_csv(tables["edges"])).iloc[:100]
    other = tmp_path / "other"
    other.mkdir()
    features.to_csv(other / "f.csv", index=False)
    edges.to_csv(other / "e.csv", index=False)
    from hopstate import predict, read_graph

    graph = read_graph(str(other / "e.csv"), features=str(other / "f.csv"))
    table = predict("run", data=graph)
    assert table["node"].str.startswith("new user").all()
    assert set(table["prediction"]) <= {"cat", "dog"}
    assert (
        main(["predict", "run", f"--data={other / 'e.csv'}", "--read.features", str(other / "f.csv"), "--out=p.csv"])
        == 0
    )
    pd.testing.assert_frame_equal(pd.read_csv("p.csv"), table)


def test_compare_prints_one_table_and_keeps_finished_runs(tables: dict[str, Path], capsys) -> None:
    arguments = ["compare", "mlp,gcn,sage,nagphormer", f"--data={tables['edges']}", "--seeds=0-1", "--out=both", "--"]
    arguments += [*options(tables)[1:], *QUICK, "--model.dim=8", "--nagphormer.tokens.num_hops=2"]
    arguments += ["--nagphormer.tokens.eigenvectors=2", "--nagphormer.batch_size=16"]
    assert main(arguments) == 0
    rows = json.loads(Path("both/table.json").read_text())
    assert [row["method"] for row in rows] == ["mlp", "gcn", "sage", "nagphormer"]
    assert all(row["runs"] == 2 for row in rows)
    before = Path("both/mlp-split0-seed1/model.safetensors").read_bytes()
    assert main(arguments) == 0
    assert Path("both/mlp-split0-seed1/model.safetensors").read_bytes() == before
    assert "mean ± standard deviation" in capsys.readouterr().out


def test_compare_tests_the_methods_pair_by_pair(capsys) -> None:
    def row(method: str, test: list[float], val: list[float]) -> dict:
        told = {"metric": "accuracy", "runs": 3, "seconds_per_epoch": 0.1, "parameters": 5, "kinds": {}}
        means = {"test_mean": sum(test) / 3, "test_std": 0.1, "val_mean": sum(val) / 3, "val_std": 0.1}
        return {"method": method, **told, **means, "values": {"test": test, "val": val}}

    show([row("one", [0.5, 0.6, 0.7], [0.6, 0.6, 0.6]), row("two", [0.4, 0.5, 0.9], [0.7, 0.7, 0.7])], "made")
    told = capsys.readouterr().out
    assert "two - one, validation: 10.00 ± 0.00 (standard error), 3 pairs, " in told
    assert "two - one, test: 0.00 ± 10.00 (standard error), 3 pairs, paired t test p = 1" in told


def test_compare_says_which_floors_a_method_is_no_better_than(tmp_path: Path, capsys) -> None:
    """Links by kind of negatives, floors beside them, each once; what is below one is said in words."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"src": rng.integers(0, 9, 300), "dst": rng.integers(9, 15, 300), "t": np.arange(300.0)})
    frame.to_csv(tmp_path / "events.csv", index=False)
    settings = ["--graphmixer.model.num_links=3", "--graphmixer.loop.epochs=1", "--loop.progress=false"]
    assert main(["compare", "graphmixer,recency", "--data=events.csv", "--out=both", "--", *settings]) == 0
    rows = {row["method"]: row for row in json.loads(Path("both/table.json").read_text())}
    assert list(rows) == ["graphmixer", "recency", "edgebank"]
    assert rows["edgebank"]["floor"]
    own, floor = rows["graphmixer"]["kinds"], rows["recency"]["kinds"]
    assert set(own) >= {"average_precision", "historical_average_precision", "inductive_average_precision"}
    for metric, words in (
        ("average_precision", "random"),
        ("historical_average_precision", "historical"),
        ("inductive_average_precision", "inductive"),
    ):
        said = "recency" in rows["graphmixer"]["below"]
        under = own[metric][0] <= floor[metric][0]
        assert not under or (said and words in rows["graphmixer"]["below"])
    for name, other in (("recency", "edgebank"), ("edgebank", "recency")):  # floors too, of one another alone
        under = any(rows[name]["kinds"][m][0] <= rows[other]["kinds"][m][0] for m in own if m in rows[other]["kinds"])
        assert (other in rows[name]["below"]) == under
        assert name not in rows[name]["below"]
    shown = capsys.readouterr().out
    assert "no better" in shown
    assert "(floor)" in shown


def test_compare_takes_no_result_of_other_data(tables: dict[str, Path], capsys) -> None:
    arguments = ["compare", "mlp", f"--data={tables['edges']}", "--out=both", "--", *options(tables)[1:], *QUICK]
    arguments += ["--model.dim=8"]
    assert main(arguments) == 0
    kept = Path("both/mlp-split0-seed0/result.json").read_bytes()
    features = pd.read_csv(tables["features"])
    features["f0"] += 1
    features.to_csv(tables["features"], index=False)
    capsys.readouterr()
    assert main(arguments) == 1
    assert "the data have changed since both/mlp-split0-seed0" in capsys.readouterr().err
    assert Path("both/mlp-split0-seed0/result.json").read_bytes() == kept


def test_compare_counts_no_run_twice(tmp_path: Path, capsys) -> None:
    assert numbers("0,0-1,1") == [0, 1]
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"src": rng.integers(0, 9, 200), "dst": rng.integers(9, 15, 200), "t": np.arange(200.0)})
    frame.to_csv(tmp_path / "events.csv", index=False)
    assert main(["compare", "recency", "--data=events.csv", "--splits=0-2", "--out=both"]) == 2
    assert "--seeds 0-2" in capsys.readouterr().err
    assert not Path("both").exists()


def test_a_refused_fit_leaves_its_folder_free(tables: dict[str, Path], capsys) -> None:
    fit = ["fit", "gcn", *options(tables), *QUICK, "--model.dim=8", "--out=run"]
    assert main([*fit, "--loop.device=abacus"]) == 2
    assert not Path("run").exists()
    assert main([*fit, "--model.num_layers=1"]) == 0
    assert json.loads(Path("run/config.json").read_text())["model"]["num_layers"] == 1
    capsys.readouterr()
    assert main(fit) == 2
    assert "--resume" in capsys.readouterr().err


def test_config_file_print_config_and_flags_agree(tables: dict[str, Path], capsys) -> None:
    with pytest.raises(SystemExit):
        main(["fit", "nagphormer", *options(tables), *SMALL, "--print_config"])
    printed = capsys.readouterr().out
    Path("run.yaml").write_text(printed)
    assert yaml.safe_load(printed)["tokens"]["num_hops"] == 2
    assert main(["fit", "nagphormer", "--config=run.yaml", "--loop.epochs=2", "--out=run"]) == 0
    assert json.loads(Path("run/result.json").read_text())["epochs"] == 2


def test_every_option_of_every_method_is_in_help(capsys) -> None:
    for method in ("nagphormer", "gcn"):
        assert main(["fit", method, "--help"]) == 0
        text = capsys.readouterr().out
        for word in ("--data", "--split.number", "--loop.optim.lr", "--model.dropout", "--out", "--resume"):
            assert word in text


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["fti"], 2, "did you mean 'fit'"),
        (["fit", "nagformer", "--data=x"], 2, "did you mean 'nagphormer'"),
        (["fit", "nagphormer", "--data=x", "--tokens.hops=3"], 2, r"did you mean '--tokens.num_hops'"),
        (["fit", "nagphormer", "--data=nowhere.csv"], 1, "nowhere.csv"),
        (["fit", "nagphormer"], 2, "--data must be given"),
        (["fit", "--data=x"], 2, "which method"),
        (["tune", "--data=x"], 2, "which method"),
        (["fit", "nagphormer", "--data=x", "--resume"], 2, "--out RUN"),
        (["evaluate", "nowhere"], 1, "no run folder at nowhere"),
        (["predict", "nowhere", "--out", "p.csv"], 1, "no run folder at nowhere"),
    ],
)
def test_mistakes_are_named(arguments: list[str], status: int, message: str, capsys) -> None:
    assert main(arguments) == status
    assert message in capsys.readouterr().err


def test_predict_refuses_an_unknown_extension_and_writes_nothing(tables: dict[str, Path], capsys) -> None:
    assert main(["fit", "mlp", *options(tables), *QUICK, "--model.dim=8", "--out=run"]) == 0
    assert main(["predict", "run", "--out", "p.xlsx"]) == 1
    assert ".parquet" in capsys.readouterr().err
    assert not Path("p.xlsx").exists()


def test_evaluate_on_data_of_another_width_is_named(tables: dict[str, Path], capsys) -> None:
    assert main(["fit", "mlp", *options(tables), *QUICK, "--model.dim=8", "--out=run"]) == 0
    assert main(["evaluate", "run", "--data", "minesweeper-generated"]) == 1
    assert "7 features a node, the model was trained with 4" in capsys.readouterr().err


def test_help_and_version(capsys) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("hopstate ")


def test_info_and_datasets_run(capsys) -> None:
    assert main(["info"]) == 0
    assert "processor" in capsys.readouterr().out
    assert main(["datasets"]) == 0
    assert "minesweeper" in capsys.readouterr().out
    assert main(["datasets", "cora"]) == 0
    told = capsys.readouterr().out
    assert "licence" in told
    assert "corafull" not in told  # the name itself is there
    assert main(["datasets", "orafull"]) == 0
    assert "corafull" in capsys.readouterr().out
    assert main(["datasets", "minesweepr"]) == 1
    assert capsys.readouterr().out == "no data set is called 'minesweepr'; did you mean 'minesweeper'?\n"


@pytest.fixture
def messages(tmp_path: Path) -> Path:
    """A stream of replies between named people as a CSV file."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 20, 600)
    b = (a + rng.integers(1, 4, 600)) % 20
    flip = rng.random(600) < 0.3
    names = np.array([f"p{i}" for i in range(20)])
    frame = pd.DataFrame({"src": names[np.where(flip, b, a)], "dst": names[np.where(flip, a, b)]})
    frame["t"] = np.sort(rng.integers(0, 400, 600))
    frame.to_csv(tmp_path / "messages.csv", index=False)
    return tmp_path / "messages.csv"


@pytest.mark.parametrize("method", ["recency", "edgebank", "pair-trees", "dygformer", "graphmixer"])
def test_temporal_methods_from_a_csv_to_scores_that_see_no_future(messages: Path, method: str, capsys) -> None:
    small = {
        "dygformer": ["--model.channel_dim=8", "--model.time_dim=8", "--model.out_dim=8", "--model.max_length=4"],
        "graphmixer": ["--model.dim=8", "--model.time_dim=8", "--model.num_links=4"],
    }.get(method, [])
    quick = ["--loop.epochs=1", "--batch_size=100"] if small else []
    arguments = ["fit", method, f"--data={messages}", *quick, *small, "--loop.progress=false", "--loop.tensorboard=no"]
    assert main([*arguments, "--out=run"]) == 0
    assert {"average_precision", "historical_average_precision", "inductive_roc_auc"} <= json.loads(
        Path("run/result.json").read_text()
    )["metrics"]["test"].keys()
    assert len(list(Path("run/negatives").glob("*.npz"))) >= 4
    assert main(["predict", "run", "--split", "test", "--out", "p.csv"]) == 0
    assert pd.read_csv("p.csv")["src"].str.startswith("p").all()
    capsys.readouterr()
    assert main(["check-leak", "run", "--moments", "2", "--queries", "8"]) == 0
    assert "no leak" in capsys.readouterr().out


def test_check_leak_of_a_static_model_is_named(tables: dict[str, Path], capsys) -> None:
    assert main(["fit", "mlp", *options(tables), *QUICK, "--model.dim=8", "--out=run"]) == 0
    assert main(["check-leak", "run"]) == 2
    assert "no temporal model" in capsys.readouterr().err


def test_a_run_names_only_the_files_it_holds(messages: Path, capsys) -> None:
    command = ["fit", "recency", "--data", str(messages), "--evaluation.strategies", "[random]", "--out", "run"]
    assert main(command) == 0
    named = capsys.readouterr().out.rpartition("(")[2].rpartition(")")[0].split(", ")
    assert "result.json" in named
    assert all(Path("run", name).is_file() for name in named)


def test_inspect_tells_streams_from_graphs(tables: dict[str, Path], messages: Path, capsys) -> None:
    assert main(["inspect", str(messages), "--plot", "card.png"]) == 0
    assert "event stream" in capsys.readouterr().out
    assert Path("card.png").read_bytes()[:4] == b"\x89PNG"
    assert main(["inspect", str(tables["edges"])]) == 0
    assert "graph" in capsys.readouterr().out


def test_inspect_takes_two_columns_without_names_for_a_graph(tmp_path: Path, capsys) -> None:
    (tmp_path / "snap.txt").write_text("".join(f"{i} {(7 * i) % 20}\n" for i in range(20)))
    assert main(["inspect", str(tmp_path / "snap.txt")]) == 0
    assert "(graph, " in capsys.readouterr().out


def test_inspect_does_not_take_faulty_events_for_a_graph(tmp_path: Path, capsys) -> None:
    path = tmp_path / "faulty.csv"
    for row, message in (("0,1,6,delete\n0,1,7,delete", "event 2 deletes"), ("0,1,soon,add", "'soon' in column 't'")):
        path.write_text(f"src,dst,t,kind\n0,1,5,add\n{row}\n")
        assert main(["inspect", str(path)]) != 0
        assert message in capsys.readouterr().err


def test_inspect_does_not_take_events_of_other_dates_for_a_graph(tmp_path: Path, capsys) -> None:
    path = tmp_path / "dates.csv"
    path.write_text("user,item,date\n0,1,11/26/2026\n0,2,11/27/2026\n")
    assert main(["inspect", str(path)]) == 1
    assert "'11/26/2026' in column 'date', row 0 (line 2), is a date" in capsys.readouterr().err


def test_inspect_names_the_nearest_option_of_graphs_and_of_events(tmp_path: Path, capsys) -> None:
    path = tmp_path / "events.csv"
    path.write_text("src,dst,t\n0,1,soon\n1,2,later\n")
    for typed, meant in (("time_colum", "time_column"), ("id_colum", "id_column"), ("edge-columns", "edge_columns")):
        assert main(["inspect", str(path), f"--read.{typed}", "t"]) == 2
        assert f"did you mean '--read.{meant}'?" in capsys.readouterr().err
    assert main(["inspect", str(path), "--read.nonsense=1"]) == 2
    assert capsys.readouterr().err == "error: unrecognized arguments: --read.nonsense; --help lists all options\n"
    assert main(["inspect", str(path), "--read.time_column", "t"]) == 1
    assert "'t' holds neither numbers nor ISO dates" in capsys.readouterr().err  # as events, not as a graph


def test_number_lists() -> None:
    assert numbers("0,2,5-7") == [0, 2, 5, 6, 7]
    for text in ("a-b", "5-3", ""):
        with pytest.raises(ConfigError, match="no list of rising numbers"):
            numbers(text)


@pytest.mark.parametrize("given", [["--batching", "cluster"], ["--batching=cluster"], ["--batching.kind", "cluster"]])
def test_a_group_is_named_by_its_kind(given, tmp_path, capsys):
    quick = ["--loop.epochs=1", "--loop.progress=false", "--loop.tensorboard=no", "--model.dim=8", "--split", "random"]
    data = ["--data=minesweeper-generated", f"--out={tmp_path / 'run'}"]
    assert main(["fit", "gcn", *data, *quick, *given]) == 0
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["batching"]["kind"] == "cluster"
    assert config["split"]["kind"] == "random"
    assert main(["fit", "gcn", *data, "--batching", "clustre"]) == 2
    assert "batching.kind" in capsys.readouterr().err


def test_ctrl_c_in_the_shell_then_resume_equals_one_run(tables: dict[str, Path], tmp_path: Path) -> None:
    settings = [a for a in SMALL if "epochs" not in a]
    base = [sys.executable, "-m", "hopstate.cli.main", "fit", "nagphormer", *options(tables), *settings]
    environment = {**os.environ, "HOPSTATE_DATA": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    cut = [*base, "--loop.epochs=4000", "--loop.patience=null", "--out=cut"]
    process = subprocess.Popen(cut, env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (
        Path("cut/metrics.csv").exists() and Path("cut/metrics.csv").stat().st_size
    ):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 130, errors
    assert "--resume --out cut" in errors
    done = len(Path("cut/metrics.jsonl").read_text().splitlines())
    on = [*base[3:], "--loop.patience=null", f"--loop.epochs={done + 5}"]
    with one_thread():  # what starts anew is the state that the files hold; no further process is needed for that
        assert main([*on, "--out=cut", "--resume"]) == main([*on, "--out=whole"]) == 0
    keep = ("best_epoch", "epochs", "metrics")
    cut_result, whole = (json.loads(Path(d, "result.json").read_text()) for d in ("cut", "whole"))
    assert {k: cut_result[k] for k in keep} == {k: whole[k] for k in keep}


def test_methods_with_other_metrics_have_a_table_of_their_own(capsys) -> None:
    row = {"runs": 1, "test_std": None, "val_std": None, "val_mean": 0.5, "seconds_per_epoch": 1.0, "parameters": 1}
    rows = [
        {**row, "method": "links", "metric": "average_precision", "test_mean": 0.8},
        {**row, "method": "labels", "metric": "roc_auc", "test_mean": 0.9},
        {**row, "method": "more-links", "metric": "average_precision", "test_mean": 0.85},
    ]
    show(rows, "stream")
    printed = capsys.readouterr().out
    first, second = printed.split("stream: roc_auc")
    assert first.index("more-links") < first.index("│ links")
    assert "labels" not in first
    assert "labels" in second


def test_errors_are_shown_as_they_are_the_smallest_first(capsys) -> None:
    row = {"metric": "mae", "runs": 2, "val_mean": 0.5, "val_std": 0.1, "seconds_per_epoch": 1.0, "parameters": 1}
    means = {"worst": 0.75, "undefined": float("nan"), "best": 0.25}
    show([{**row, "method": name, "test_mean": mean, "test_std": 0.125} for name, mean in means.items()], "molecules")
    printed = capsys.readouterr().out
    assert "percent" not in printed
    assert "0.2500 ± 0.1250" in printed
    assert printed.index("best") < printed.index("worst") < printed.index("undefined")


@pytest.mark.parametrize("out", ["s_link", "./model"])
def test_a_folder_may_end_like_a_group_of_settings(out, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "gcn", "--data", "absent.csv", "--task", "link", "--out", out]) != 0
    said = capsys.readouterr().err
    assert "absent.csv" in said
    assert "group of settings" not in said


@pytest.mark.parametrize("words", [["compare", "recency", "--data", "x"], ["reproduce", "recency/uci"]])
def test_settings_before_the_dashes_are_told_where_to_go(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*words, "--read.source_column", "person"])
    said = capsys.readouterr().err
    assert "settings of the runs stand after --: -- --read.source_column person" in said
    for wrong in ("--seedz", "--out-to=a.csv"):  # neither is a setting
        with pytest.raises(SystemExit, match="2"):
            main([*words, wrong, "2"])
        said = capsys.readouterr().err
        assert f"unrecognized arguments: {wrong}" in said
        assert "after --" not in said.splitlines()[-1]
