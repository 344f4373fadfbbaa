"""Settings under their former names."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from hopstate.errors import ConfigError, HopstateWarning
from hopstate.methods import MODULES, get_method
from hopstate.methods.parser import parser_of
from hopstate.methods.settings import config_from, parse_words
from hopstate.runs.reproduce.results import read
from hopstate.runs.tune_spaces import space_of
from hopstate.training.renamed import RENAMED, former_names, todays_metric, with_todays_names
from hopstate.training.run_folder import RunFolder


def words_of(*words: str):
    method = get_method("ctdg-ssm")
    return parse_words(method, parser_of(method), ["--data", "x", *words])({})


def test_no_former_name_is_a_setting_and_todays_are():
    parsers = [parser_of(get_method(name)) for name in MODULES]
    known = {key for parser in parsers for key in parser.keys()}  # noqa: SIM118 - no mapping
    assert not known & RENAMED.keys()
    assert known >= set(RENAMED.values())


@pytest.mark.parametrize(
    "settings",
    [
        {"loop": {"products": "high", "seed": 1}, "truncate": 3},
        {"loop.products": "high", "truncate": 3, "loop.seed": 1},
    ],
)
def test_former_names_are_read_from_settings(settings):
    given = {**settings, "data": "x"}
    with pytest.warns(HopstateWarning, match="truncate is called tbptt_window now") as told:
        config = config_from(get_method("ctdg-ssm"), given)
    assert (config.tbptt_window, config.loop.matmul_precision, config.loop.seed) == (3, "high", 1)
    assert "loop.products is called loop.matmul_precision now" in str(told[0].message)
    assert given == {**settings, "data": "x"}  # what was given stays


def test_words_and_files_are_read(tmp_path: Path):
    file = tmp_path / "own.yaml"
    file.write_text("truncate: 3\nloop: {products: high, seed: 1}\nmodel:\n  max_norm: null\n")
    for words in (
        ["--truncate", "3", "--loop.products=high", "--loop.seed=1"],
        ["--config", str(file)],
        [f"--config={file}"],
    ):
        with pytest.warns(HopstateWarning, match="tbptt_window now"):
            config = words_of(*words)
        assert (config.tbptt_window, config.loop.matmul_precision, config.loop.seed) == (3, "high", 1)
    with pytest.warns(HopstateWarning, match=r"own\.yaml.*tbptt_window"):
        config = words_of("--config", str(file), "--tbptt_window", "7")  # later words stand over the file
    assert config.tbptt_window == 7
    assert config.loop.matmul_precision == "high"
    with pytest.warns(HopstateWarning, match="tbptt_window"):
        assert words_of("--tbptt_window", "7", "--config", str(file)).tbptt_window == 3


def test_a_wrong_value_names_the_file_and_todays_name(tmp_path: Path):
    file = tmp_path / "own.yaml"
    file.write_text("truncate: many\n")
    with pytest.warns(HopstateWarning), pytest.raises(ConfigError, match=r"tbptt_window.*own\.yaml"):
        words_of("--config", str(file))


def test_both_names_are_refused():
    with pytest.raises(ConfigError, match="leave truncate out"):
        with_todays_names({"truncate": 3, "tbptt_window": 4}, "own.yaml")


def test_a_method_of_ones_own_keeps_its_settings(tmp_path: Path):
    assert not former_names({"truncate": 3}, {"truncate", "tbptt_window"})
    assert not former_names({"truncate": 3}, {"dim"})  # no setting here, by either name
    run = RunFolder(tmp_path)
    run.write_json("config.json", {"method": "mine:METHOD", "truncate": 3})
    assert run.settings()["truncate"] == 3


@pytest.mark.parametrize(
    ("former", "today"),
    [
        ("ap", "average_precision"),
        ("val_new_historical_ap", "val_new_historical_average_precision"),
        ("inductive_auc_low", "inductive_roc_auc_low"),
        ("val_mean_ap", "val_mean_average_precision"),
        *((name, name) for name in ("average_precision", "val_roc_auc", "map", "gap", "recap", "many_mrr", "ap@10")),
    ],
)
def test_metrics_have_one_spelling(former: str, today: str):
    assert todays_metric(former) == todays_metric(today) == today


def test_a_metric_that_chooses_is_read_by_its_former_name(tmp_path: Path):
    method, file = get_method("ctdg-ssm-nodes"), tmp_path / "own.yaml"
    file.write_text("metric: ap\n")
    parser = parser_of(method)
    for words in (["--metric", "ap"], ["--metric=ap"], ["--config", str(file)]):
        with pytest.warns(HopstateWarning, match="metric ap is called average_precision now"):
            assert parse_words(method, parser, ["--data", "x", *words])({}).metric == "average_precision"
    with pytest.warns(HopstateWarning, match="metric auc is called roc_auc now"):
        assert config_from(method, {"data": "x", "metric": "auc"}).metric == "roc_auc"
    with pytest.warns(HopstateWarning, match="truncate is called tbptt_window now, metric ap is called average_prec"):
        with_todays_names({"truncate": 3, "metric": "ap"}, "own.yaml")
    run = RunFolder(tmp_path)
    run.write_json("config.json", {"method": "ctdg-ssm-nodes", "metric": "ap"})
    with pytest.warns(HopstateWarning, match=r"config\.json: metric ap is called average_precision"):
        assert run.settings()["metric"] == "average_precision"
    run.write_json("config.json", {"method": "mine:METHOD", "metric": "ap"})
    assert run.settings()["metric"] == "ap"


def test_a_setting_that_a_method_lacks_is_refused_as_it_was_given(tmp_path: Path):
    """Without a word of a new name for a value of it."""
    method, file = get_method("recency"), tmp_path / "own.yaml"
    file.write_text("metric: ap\n")
    parser = parser_of(method)
    for words in (["--metric", "ap"], ["--metric=ap"]):
        with pytest.raises(ConfigError, match=r"--metric[ =]ap"):
            parse_words(method, parser, ["--data", "x", *words])({})
    with pytest.raises(ConfigError, match="metric"):
        parse_words(method, parser, ["--data", "x", "--config", str(file)])({})
    with pytest.raises(ConfigError, match="metric"):
        config_from(method, {"data": "x", "metric": "ap"})


def test_a_metric_that_links_have_no_setting_for_is_refused_with_what_there_is():
    for method in ("recency", "dyg-mamba"):
        with pytest.raises(ConfigError, match=r"--metric ap; links are judged by all .*--evaluation\.choose says"):
            parse_words(get_method(method), parser_of(get_method(method)), ["--data", "x", "--metric", "ap"])({})


def test_a_search_space_is_read_by_former_names(tmp_path: Path):
    method, file = get_method("gcn"), tmp_path / "space.yaml"
    file.write_text("batching.num_parts: [10, 20]\nbatching.nodes: [parts, random]\n")
    today = {"batching.num_clusters": [10, 20], "batching.nodes": ["clusters", "random"]}
    texts = ["batching.num_parts=10,20", "batching.nodes=parts,random"]
    for given in (texts, [str(file)], {"batching.num_parts": [10, 20], "batching.nodes": ["parts", "random"]}):
        with pytest.warns(HopstateWarning, match=r"num_parts is called batching\.num_clusters now, batching\.nodes pa"):
            found = space_of(method, given)
        assert {key: found[key] for key in today} == today
        assert "batching.num_parts" not in found
    with pytest.warns(HopstateWarning, match="num_clusters now"):
        paired = space_of(method, {"batching.num_parts,batching.parts_per_batch": ["10,2", "20,4"]})
    assert list(paired) == ["batching.num_clusters,batching.clusters_per_batch"]
    with pytest.raises(ConfigError, match=r"gives batching\.num_clusters and, by its former name"):
        space_of(method, {"batching.num_parts": [1], "batching.num_clusters": [2]})


def test_a_method_of_ones_own_keeps_its_metrics(tmp_path: Path):
    run, figures = RunFolder(tmp_path), {"ap": 0.5}
    run.write_json("config.json", {"method": "mine:METHOD"})
    run.write_json("floors.json", {"mean": figures})
    assert run.floors() == {"mean": figures}
    line = {"recipe": "r", "settings": "s", "run": 0, "metric": "ap", "metrics": {"test": figures}}
    for method, known in (("mine:METHOD", figures), ("recency", {"average_precision": 0.5})):
        (tmp_path / "lines.jsonl").write_text(json.dumps(line | {"method": method}) + "\n")
        assert read(tmp_path / "lines.jsonl")[0]["metrics"]["test"] == known


def test_a_value_in_a_group_is_read_by_its_former_name(tmp_path: Path):
    method, file = get_method("gcn"), tmp_path / "own.yaml"
    file.write_text("batching: {kind: top, nodes: parts, num_parts: 7, parts_per_batch: 3}\n")
    given = ["--batching.num_parts=7", "--batching.parts_per_batch", "3", "--batching", "top"]
    for words in (
        ["--batching.nodes=parts", *given],
        [*given, "--batching.nodes", "parts"],
        ["--config", str(file)],
    ):
        with pytest.warns(HopstateWarning, match=r"batching\.nodes parts is called clusters now"):
            found = parse_words(method, parser_of(method), ["--data", "x", *words])({}).batching
        assert (found.kind, found.nodes, found.num_clusters, found.clusters_per_batch) == ("top", "clusters", 7, 3)
    with pytest.warns(HopstateWarning, match=r"batching\.nodes parts is called clusters now"):
        found = config_from(method, {"data": "x", "batching": {"nodes": "parts", "num_parts": 50}}).batching
    assert (found.nodes, found.num_clusters) == ("clusters", 50)


def test_figures_of_earlier_runs_are_read_by_todays_names(tmp_path: Path):
    run, figures = RunFolder(tmp_path), {"ap": 0.5, "new_auc": None, "historical_ap_low": 0.25, "many_mrr": 0.1}
    result = {"method": "gcn", "metric": "historical_ap", "best_epoch": 1, "metrics": {"test": figures}}
    today = {"average_precision": 0.5, "new_roc_auc": None, "historical_average_precision_low": 0.25, "many_mrr": 0.1}
    run.write_json("result.json", result)
    run.write_json("floors.json", {"recency": figures})
    run.write_json("config.json", {"method": "gcn"})
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"epoch": 1, "val_ap": 0.5}) + "\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # these files are our own, so nobody is told
        assert run.result()["metrics"]["test"] == today
        assert run.result()["metric"] == "historical_average_precision"
        assert run.floors() == {"recency": today}
        assert run.history() == [{"epoch": 1, "val_average_precision": 0.5}]
    run.write_json("config.json", {"method": "mine:METHOD"})
    run.write_json("result.json", result | {"method": "mine:METHOD"})
    assert run.result()["metrics"]["test"] == figures  # what a method of one's own calls its metrics stays
    assert run.history() == [{"epoch": 1, "val_ap": 0.5}]
