"""The parsed report: complete, escaped, self-contained, without empty sections."""

from __future__ import annotations

import base64
import html
import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from hopstate.cli.main import main
from hopstate.errors import CheckpointError, ConfigError, MissingFileError
from hopstate.runs.report import write_report
from hopstate.runs.reproduce import append_line

NASTY = '<script>alert("1")</script>&\'"'
VOID = {"meta", "br", "img", "link", "hr", "input"}


def make_run(folder: Path, method: str, data: str, test: dict[str, float], *, seed: int = 0, **more: Any) -> None:
    """Write a run folder as training does."""
    folder.mkdir(parents=True)
    settings = {"data": data, "method": method, "loop": {"seed": seed, "epochs": 3}, "model": {"dim": 8, **more}}
    metric = next(iter(test))
    (folder / "config.json").write_text(json.dumps({"format": 2, **settings}))
    history = [
        {"epoch": e, "train_loss": 1 / e, f"val_{metric}": test[metric] - 0.01 * (3 - e), "seconds": 0.1}
        for e in (1, 2, 3)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in history))
    result = {
        "method": method,
        "metric": metric,
        "metrics": {"train": test, "val": test, "test": test},
        "best_epoch": 3,
        "epochs": 3,
        "seconds": 2.5,
        "seconds_per_epoch": 0.8,
        "parameters": 1234,
        "peak_memory_mb": 456.0,
    }
    (folder / "result.json").write_text(json.dumps(result))
    environment = {"time": "2026-01-01T00:00:00+00:00", "versions": {"hopstate": "0.1.0"}, "processor": "a processor"}
    (folder / "environment.json").write_text(json.dumps(environment))


def table(report: Path, caption: str) -> list[list[str]]:
    """Return the rows of a table of a report, column names first."""
    part = report.read_text().split(f">{caption}</caption>")[1].split("</table>")[0]
    rows = part.split("<tr")[1:]
    return [[html.unescape(re.sub("<[^>]*>", "", c)) for c in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in rows]


def images(report: Path) -> list[str]:
    """Return the charts of a report as SVG."""
    return [
        base64.b64decode(data).decode()
        for data in re.findall(r'src="data:image/svg\+xml;base64,(.*?)"', report.read_text())
    ]


def result_line(recipe: str, run: int, **test: float) -> dict[str, Any]:
    """A line of a results file."""
    method, _, data = recipe.partition("/")
    return {
        "recipe": recipe, "method": method, "data": data, "metric": next(iter(test)), "settings": "abc", "altered": {},
        "run": run, "metrics": {"val": test, "test": test}, "seconds": 9.0, "wall_seconds": 12.0, "cpu_seconds": 10.0,
        "peak_memory_mb": 321.0, "version": "0.1.0", "processor": "a processor", "threads": 1, "gpu": None,
    }  # fmt: skip


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with every section."""
    home = tmp_path_factory.mktemp("report")
    for seed in range(3):
        make_run(home / f"static/gcn-{seed}", "gcn", "minesweeper", {"roc_auc": 0.8 + 0.01 * seed}, seed=seed)
    make_run(home / "static/wide", "gcn", "minesweeper", {"roc_auc": 0.85}, dim=64)
    link = {
        "average_precision": 0.9,
        "roc_auc": 0.91,
        "historical_average_precision": 0.8,
        "historical_roc_auc": 0.79,
        "new_average_precision": 0.85,
        "new_roc_auc": 0.84,
    }
    make_run(
        home / "links/dyg", "dyg-mamba", "uci", link | {"average_precision_low": 0.88, "average_precision_high": 0.92}
    )
    make_run(home / "links/recency", "recency", "uci", {**link, "average_precision": 0.7})
    for run in range(3):
        append_line(home / "results.jsonl", result_line("gcn/minesweeper", run, roc_auc=0.88 + 0.01 * run))
    append_line(home / "results.jsonl", result_line("edgebank/uci", 0, average_precision=0.762))
    return write_report([home / "static", home / "links"], home / "report.html", results_file=home / "results.jsonl")


class Seen(HTMLParser):
    """The content of a page: tags with attributes in order, text, and whether tags are properly nested."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.errors: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.errors.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, *names: str) -> list[dict[str, str | None]]:
        return [attrs for tag, attrs in self.tags if tag in names]


def test_every_section_is_present(full: Path) -> None:
    seen = Seen(full.read_text())
    assert not seen.errors
    assert not seen.open
    text = "".join(seen.words)
    assert "gcn (model.dim=8)" in text  # names the setting that differs between two runs of one method
    assert "81.00 ± 1.00" in text
    assert "88.00 to 92.00" in text  # a single run's bootstrap interval
    assert "78.52 to 83.48" in text  # 81 ± t(2) 1/sqrt(3)


def test_links_are_compared_with_baselines_by_kind_of_negatives(tmp_path: Path) -> None:
    link = {
        "average_precision": 0.9,
        "historical_average_precision": 0.8,
        "inductive_average_precision": 0.75,
        "new_average_precision": 0.85,
    }
    make_run(tmp_path / "runs/dyg", "dyg-mamba", "uci", link)
    make_run(
        tmp_path / "runs/recency",
        "recency",
        "uci",
        {**link, "average_precision": 0.7, "historical_average_precision": 0.82},
    )
    baselines = {
        "recency": {"average_precision": 0.1},
        "pair-trees": {
            "average_precision": 0.95,
            "historical_average_precision": 0.7,
            "inductive_average_precision": 0.9,
        },
    }
    (tmp_path / "runs/dyg/baselines.json").write_text(json.dumps(baselines))
    page = write_report([tmp_path / "runs"], tmp_path / "report.html")
    rows = {row[0].split()[0]: row for row in table(page, "Links of uci: all links")[1:]}
    assert set(rows) == {"dyg-mamba", "recency", "pair-trees"}  # a baseline with its own run is listed once
    assert rows["dyg-mamba"][1] == "recency on historical; inductive, pair-trees on random; inductive"
    assert rows["recency"][1] == "pair-trees on random; inductive"
    assert rows["pair-trees"][1] == "recency on historical"
    assert sum(row[0].endswith(" baseline") for row in rows.values()) == 2
    assert table(page, "Links of uci: links with new nodes")[1][1] == "recency on random"


def test_metrics_of_links_show_the_number_of_events(tmp_path: Path) -> None:
    link = {"average_precision": 0.9, "new_average_precision": 0.85}
    make_run(tmp_path / "dyg", "dyg-mamba", "uci", link | {"num_events": 8976, "new_num_events": 11})
    text = "".join(Seen(write_report([tmp_path], tmp_path / "report.html").read_text()).words)
    assert "8,976 events" in text
    assert "11 events" in text
    make_run(tmp_path / "few/dyg", "dyg-mamba", "uci", link | {"num_events": 40})
    text = "".join(Seen(write_report([tmp_path / "few"], tmp_path / "few.html").read_text()).words)
    assert "40 events" in text


def test_areas_of_nodes_are_not_metrics_of_links(tmp_path: Path) -> None:
    for folder, method, task in (("nodes", "gcn", "node"), ("links", "sage", "link")):
        make_run(tmp_path / folder, method, "data", {"roc_auc": 0.8})
        config = json.loads((tmp_path / folder / "config.json").read_text())
        (tmp_path / folder / "config.json").write_text(json.dumps(config | {"class_weights": "none", "task": task}))
    page = write_report([tmp_path], tmp_path / "report.html")
    assert [row[0] for row in table(page, "Links of data: all links")[1:]] == ["sage"]
    single_page = write_report([tmp_path / "nodes"], tmp_path / "single.html")
    assert "Links of" not in single_page.read_text()


def test_a_single_run_shows_its_stored_intervals(tmp_path: Path) -> None:
    make_run(tmp_path / "one", "gcn", "data", {"accuracy": 0.8})
    (tmp_path / "one/curves.json").write_text('{"intervals": {"accuracy": [0.75, 0.85]}}')
    page = write_report([tmp_path], tmp_path / "report.html")
    assert "75.00 to 85.00" in page.read_text()


def test_the_page_loads_no_external_resource(full: Path) -> None:
    source = full.read_text()
    seen = Seen(source)
    for attrs in (attrs for _, attrs in seen.tags):
        for name in ("src", "href", "xlink:href", "srcset", "action", "poster", "data"):
            value = attrs.get(name)
            assert value is None or value.startswith(("#", "data:")), attrs
        assert not any(name.startswith("on") for name in attrs)
    assert not seen.all("script", "link", "iframe", "object", "embed")
    assert not re.search(r"https?:|//\w|@import|url\(", source.replace("<!DOCTYPE html>", ""))


def test_the_page_is_accessible(full: Path) -> None:
    seen = Seen(full.read_text())
    assert seen.all("html")[0]["lang"] == "en"
    assert any(meta.get("name") == "viewport" for meta in seen.all("meta"))
    ids = [attrs["id"] for _, attrs in seen.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    levels = [int(tag[1]) for tag, _ in seen.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    for attrs in (attrs for _, attrs in seen.tags):
        for target in (attrs.get("aria-labelledby") or "").split():
            assert target in ids
        if (attrs.get("href") or "").startswith("#"):
            assert attrs["href"][1:] in ids  # type: ignore[index]
    images = seen.all("img")
    assert len(images) == 4  # two curves of each dataset
    assert all(image["alt"] for image in images)
    assert len(seen.all("table")) == len(seen.all("caption"))
    assert {th.get("scope") for th in seen.all("th")} == {"col", "row"}


def test_user_strings_are_escaped(tmp_path: Path) -> None:
    make_run(tmp_path / "a<b>&c", NASTY, f"data{NASTY}".replace("/", ""), {"average_precision": 0.5, f"x{NASTY}": 1.0})
    make_run(tmp_path / "other", NASTY, f"data{NASTY}".replace("/", ""), {"average_precision": 0.6}, note=NASTY)
    append_line(tmp_path / "r.jsonl", {**result_line("gcn/cora", 0, accuracy=0.5), "altered": {NASTY: NASTY}})
    page = write_report(
        [tmp_path / "a<b>&c", tmp_path / "other"],
        tmp_path / "report.html",
        results_file=tmp_path / "r.jsonl",
        title=NASTY,
    )
    source = page.read_text()
    seen = Seen(source)
    assert "<script" not in source
    assert not seen.all("script", "i", "b")
    assert not seen.errors
    assert NASTY in "".join(seen.words)  # shown unchanged


def test_empty_sections_are_omitted(tmp_path: Path) -> None:
    make_run(tmp_path / "run", "gcn", "cora", {"accuracy": 0.8})
    (tmp_path / "run" / "metrics.jsonl").unlink()
    text = "".join(Seen(write_report([tmp_path / "run"], tmp_path / "r.html").read_text()).words)
    for absent in ("Published", "Learning curves", "side by side", "Link prediction", "Explanations"):
        assert absent not in text.split("Results", 1)[1]


def test_an_unfinished_run_is_named(tmp_path: Path) -> None:
    make_run(tmp_path / "run", "gcn", "cora", {"accuracy": 0.8})
    (tmp_path / "run" / "result.json").unlink()
    make_run(tmp_path / "done", "sage", "cora", {"accuracy": 0.8})
    page = write_report([tmp_path], tmp_path / "r.html")
    assert "gcn" in "".join(Seen(page.read_text()).words)
    assert [row[0] for row in table(page, "Results on cora")[1:]] == ["sage"]


def test_different_data_of_one_name_are_not_mixed(tmp_path: Path) -> None:
    def run(name: str, source: str, digest: str, value: float) -> None:
        make_run(tmp_path / name, "gcn", source, {"average_precision": value}, seed=len(name))
        if digest:
            (tmp_path / name / "data.json").write_text(json.dumps({"content_hash": digest, "num_nodes": 3}))

    run("a", "/home/a/events.csv", "1" * 32, 0.8)
    run("aa", "/home/a/events.csv", "1" * 32, 0.6)
    run("aaa", "/elsewhere/same/events.csv", "1" * 32, 0.7)  # a copy
    page = write_report([tmp_path], tmp_path / "r.html")
    assert [row[2] for row in table(page, "Results on events.csv")[1:]] == ["70.00 ± 10.00"]
    run("b", "/home/b/events.csv", "2" * 32, 0.5)
    run("bb", "/home/b/events.csv", "", 0.3)  # stopped before its data were read
    page = write_report([tmp_path], tmp_path / "r.html")
    assert table(page, "Results on b/events.csv")[1][2] == "40.00 ± 14.14"
    assert table(page, "Results on a/events.csv")[1][2] == "70.00 ± 14.14"
    run("later", "/home/a/events.csv", "3" * 32, 0.1)  # the file was changed
    page = write_report([tmp_path], tmp_path / "r.html")
    assert table(page, "Results on a/events.csv (contents 11111111)")[1][2] == "70.00 ± 14.14"
    assert table(page, "Results on a/events.csv (contents 33333333)")[1][2] == "10.00"
    assert "a/events.csv (contents 33333333)" in {row[2] for row in table(page, "What was run, and where")}


def test_errors_are_not_percentages_and_smaller_is_better(tmp_path: Path) -> None:
    make_run(tmp_path / "worse", "gcn", "peptides", {"mae": 0.5})
    make_run(tmp_path / "better", "sage", "peptides", {"mae": 0.25})
    page = write_report([tmp_path], tmp_path / "r.html")
    rows = table(page, "Results on peptides")[1:]
    assert [(row[0], row[2]) for row in rows] == [("sage best", "0.2500"), ("gcn", "0.5000")]


def verdict(page: Path) -> list[str]:
    """Return the sentences on each dataset."""
    found = re.findall(r'<div class="verdict"><h3>.*?</h3>(.*?)</div>', page.read_text(), re.S)
    return [html.unescape(re.sub("<[^>]*>", " ", words)).strip() for words in found]


def test_the_page_starts_with_method_metric_baseline_and_cost(tmp_path: Path) -> None:
    for seed in range(3):
        for name, value in (("dyg-mamba", 0.9), ("ctdg-ssm", 0.8), ("pair-trees", 0.75)):
            make_run(tmp_path / f"{name}-{seed}", name, "uci", {"average_precision": value + 0.01 * seed}, seed=seed)
            (tmp_path / f"{name}-{seed}/baselines.json").write_text('{"recency": {"average_precision": 0.6}}')
    make_run(tmp_path / "late", "ctdg-ssm", "uci", {"average_precision": 0.8}, seed=3)
    (tmp_path / "late/result.json").unlink()
    page = write_report([tmp_path], tmp_path / "r.html")
    assert page.read_text().index("Verdict</h2>") < page.read_text().index("Results</h2>")
    rows = [row[0] for row in table(page, "Results on uci")[1:]]
    assert rows == ["dyg-mamba best", "ctdg-ssm", "pair-trees baseline", "recency baseline"]
    (words,) = verdict(page)
    for part in ("dyg-mamba", "91.00 ± 1.00", "88.52 to 93.48", "15.00", "pair-trees", "76.00", "2.5 s", "456 MB"):
        assert part in words
    assert words.index("dyg-mamba") < words.index("pair-trees") < words.index("ctdg-ssm") < words.index("10.00")
    for seed in range(3):  # a baseline with its own runs is best if validation ranks it first
        make_run(tmp_path / f"more-{seed}", "pair-trees", "uci", {"average_precision": 0.99}, seed=seed, trees=9)
    page = write_report([tmp_path], tmp_path / "r.html")
    (words,) = verdict(page)
    assert words.startswith("pair-trees (model.trees=9)")
    assert words.index("99.00") < words.index("dyg-mamba")
    rows = [row[0] for row in table(page, "Results on uci")[1:]]
    assert rows[:2] == ["pair-trees (model.trees=9) best", "dyg-mamba"]


def test_the_verdict_tests_the_difference_of_means(tmp_path: Path) -> None:
    for seed in range(3):
        for name, value in (("gcn", 0.80), ("sage", 0.801)):
            make_run(tmp_path / f"{name}-{seed}", name, "cora", {"accuracy": value + 0.01 * seed}, seed=seed)
    make_run(tmp_path / "single", "gcn", "photo", {"mae": 0.5})
    near, single = verdict(write_report([tmp_path], tmp_path / "r.html"))
    assert near.startswith("sage")
    assert "0.10" in near
    assert "0.5000" in single
    for name, value in (("gcn", 0.5), ("sage", 0.9)):  # a significant difference
        for seed in range(3):
            make_run(tmp_path / f"far/{name}-{seed}", name, "cora", {"accuracy": value + 0.01 * seed}, seed=seed)
    (far,) = verdict(write_report([tmp_path / "far"], tmp_path / "f.html"))
    without_numbers = [re.sub(r"[\d.]+", "", words) for words in (near, far)]
    assert without_numbers[0] != without_numbers[1]


def test_runs_under_different_protocols_are_not_compared(tmp_path: Path) -> None:
    for name, kind in (("ours", "chronological"), ("theirs", "dyglib")):
        make_run(tmp_path / name, "dyg-mamba", "uci", {"average_precision": 0.9})
        config = json.loads((tmp_path / name / "config.json").read_text())
        config |= {"split": {"kind": kind, "val_ratio": 0.15, "test_ratio": 0.15}, "evaluation": {"protocol": "pooled"}}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    page = write_report([tmp_path], tmp_path / "r.html")
    for kind in ("chronological", "dyglib"):
        rows = table(page, f"Results on uci, {kind} split 15/15 pooled protocol")[1:]
        assert [row[0] for row in rows] == ["dyg-mamba"]
    assert (
        "Results on uci<" in write_report([tmp_path / "ours"], tmp_path / "r.html").read_text()
    )  # a single protocol needs no name


def test_empty_columns_are_omitted(full: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "run", "gcn", "cora", {"accuracy": 0.8})
    append_line(tmp_path / "results.jsonl", result_line("edgebank/uci", 0, average_precision=0.762))
    page = write_report([tmp_path], tmp_path / "r.html", results_file=tmp_path / "results.jsonl")
    for caption in ("Results on cora", "Published against measured on uci"):
        assert "95% interval" not in table(page, caption)[0]
        assert {len(row) for row in table(page, caption)} == {len(table(page, caption)[0])}
    assert "95% interval" in table(full, "Results on uci")[0]


def test_the_best_and_the_baselines_are_marked(tmp_path: Path) -> None:
    for name, value in (("gcn", 0.8), ("sage", 0.9)):
        make_run(tmp_path / name, name, "cora", {"accuracy": value})
        baselines = {"majority": {"accuracy": 0.3}, "mlp": {"accuracy": 0.85, "loss": None}}
        (tmp_path / name / "baselines.json").write_text(json.dumps(baselines))
    page = write_report([tmp_path], tmp_path / "r.html")
    rows = table(page, "Results on cora")[1:]
    assert [row[0] for row in rows] == ["sage best", "mlp baseline", "gcn", "majority baseline"]
    assert [row[2] for row in rows] == ["90.00", "85.00 ± 0.00", "80.00", "30.00 ± 0.00"]
    make_run(tmp_path / "mlp", "mlp", "cora", {"accuracy": 0.85})  # a run of the method replaces the baseline
    page = write_report([tmp_path], tmp_path / "r.html")
    assert [row[0] for row in table(page, "Results on cora")[1:]] == ["sage best", "mlp", "gcn", "majority baseline"]
    (tmp_path / "gcn" / "baselines.json").write_text('{"majority": {"accuracy": "much"}}')
    with pytest.raises(CheckpointError, match=r"baselines\.json"):
        write_report([tmp_path], tmp_path / "r.html")


def test_errors_name_the_wrong_input(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(MissingFileError, match="nowhere"):
        write_report([tmp_path / "nowhere"], tmp_path / "r.html")
    with pytest.raises(MissingFileError, match="empty"):
        write_report([tmp_path / "empty"], tmp_path / "r.html")
    with pytest.raises(MissingFileError, match=r"other\.csv"):
        write_report([tmp_path / "other.csv"], tmp_path / "r.html")
    with pytest.raises(ConfigError):
        write_report([], tmp_path / "r.html")
    with pytest.raises(MissingFileError, match=r"none\.jsonl"):
        write_report([], tmp_path / "r.html", results_file=tmp_path / "none.jsonl")
    assert not (tmp_path / "r.html").exists()


def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "run", "gcn", "cora", {"accuracy": 0.8})
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "deep" / "r.html"), "--title", "Mine"]) == 0
    assert "<title>Mine</title>" in (tmp_path / "deep" / "r.html").read_text()
    assert "r.html" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "no")]) == 1


def test_the_page_is_opened_only_with_a_display(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "run", "gcn", "cora", {"accuracy": 0.8})
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    command = ["report", str(tmp_path / "run"), "--out", str(tmp_path / "r.html"), "--open"]
    assert main(command) == 0
    assert not opened
    monkeypatch.setenv("DISPLAY", ":0")
    assert main(command) == 0
    assert opened == [(tmp_path / "r.html").as_uri()]


def lines_of(image: str) -> int:
    """Return how many lines with points in them a chart has, apart from its axes and grid."""
    return len(re.findall(r'<path d="[^"]*" clip-path="[^"]*" style="fill: none; stroke: #(?!c9ced6)', image))


def test_three_runs_have_a_mean_curve_and_fewer_one_curve_each(tmp_path: Path) -> None:
    for seed in range(3):
        make_run(tmp_path / f"gcn-{seed}", "gcn", "cora", {"accuracy": 0.8 + 0.01 * seed}, seed=seed)
    means = images(write_report([tmp_path], tmp_path / "r.html"))
    two = images(write_report([tmp_path / "gcn-0", tmp_path / "gcn-1"], tmp_path / "r.html"))
    assert [lines_of(image) for image in means] == [1, 1]
    assert [lines_of(image) for image in two] == [2, 2]


@pytest.mark.parametrize("words", [NASTY.replace("/", ""), "$x^2$", "a\x07b", "\\alpha & <b>", "ünïcode 漢", "_x"])
def test_charts_do_not_interpret_markup(words: str, tmp_path: Path) -> None:
    make_run(tmp_path / "run", words, "cora", {"accuracy": 0.8})
    shown = words.replace("\x07", "\N{REPLACEMENT CHARACTER}")
    for image in images(write_report([tmp_path], tmp_path / "r.html")):
        words_of = [html.unescape(word).strip() for word in re.findall(r"<text[^>]*>([^<]*)</text>", image)]
        assert shown in words_of
        assert "<script" not in image


def test_the_command_that_made_a_run_is_shown(tmp_path: Path) -> None:
    make_run(tmp_path / "run", "gcn", "cora", {"accuracy": 0.8})
    path = tmp_path / "run/environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"command": ["hopstate", "fit", "gcn", "--data=a b"]}))
    page = write_report([tmp_path], tmp_path / "r.html")
    assert table(page, "What was run, and where")[1][-1] == "1"
    codes = re.findall("<code>(.*?)</code>", page.read_text())
    assert [html.unescape(code) for code in codes] == [
        "hopstate fit gcn '--data=a b'"
    ] * 2  # of the verdict, of the runs
