"""One self-contained HTML page of runs and results, for a screen, a telephone or paper.

`collect` reads run folders and groups those that differ by seed or split alone, `sections` and `links` choose what is
told of them, `charts` draws it as SVG in the colours of `style`, and `page` puts it into the templates. Run folders,
tables of `hopstate explain` and a file of results enter; one HTML file leaves that needs no other file and no network.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from hopstate.errors import ConfigError, MissingFileError
from hopstate.io.files import write_text
from hopstate.runs.report import links, sections, shapes, verdict
from hopstate.runs.report.collect import FeatureTable, Influence, collect
from hopstate.runs.report.page import Page
from hopstate.runs.reproduce import results
from hopstate.training.run_folder import machine


def write_report(
    runs: Iterable[str | Path],
    out: str | Path,
    *,
    results_file: str | Path | None = None,
    title: str = "hopstate report",
) -> Path:
    """Write runs and results as one HTML page that needs no other file and no network; return its path.

    Args:
        runs: run folders, folders that hold some (of compare, tune or reproduce), CSV tables of `hopstate explain`.
        out: the page.
        results_file: results of `hopstate reproduce`, for published against measured.
        title: of the page.

    Raises:
        ConfigError: nothing to report.
        MissingFileError: a folder or file that is not there, or a folder without a run.
        FormatError: a file that is not what it should be.
        StorageError: the page could not be written; an earlier one is as it was.
    """
    groups, tables = collect(runs)
    lines = []
    if results_file is not None:
        if not Path(results_file).is_file():
            raise MissingFileError(f"there is no results file {results_file}; `hopstate reproduce` makes one")
        lines = results.read(results_file)
    if not (groups or tables or lines):
        raise ConfigError("nothing to report: name run folders, or a file of results with --results")
    count = sum(len(group.runs) for group in groups) + len(lines)
    today = datetime.now(UTC)
    version = machine()["versions"]["hopstate"]
    page = Page(title, f"{count} {'run' if count == 1 else 'runs'}; made on {today:%d %B %Y} by hopstate {version}.")
    verdict.verdict(page, groups)
    sections.overview(page, groups)
    sections.published(page, lines)
    sections.curves(page, groups)
    sections.recipes(page, lines)
    links.strategies(page, groups)
    shapes.rankings(page, groups)
    shapes.reliability(page, groups)
    sections.costs(page, groups)
    sections.timelines(page, [one for one in tables if isinstance(one, Influence)])
    sections.features(page, [one for one in tables if isinstance(one, FeatureTable)])
    sections.runs(page, groups)
    content = page.html(f"Made by hopstate {version} on {today:%Y-%m-%d %H:%M} UTC. This page holds all it shows.")
    path = Path(out)
    write_text(path, content)
    return path
