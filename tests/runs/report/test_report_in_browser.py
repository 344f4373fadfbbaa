"""The report in a real headless browser: on a phone, on a desktop, in dark mode, in print; skips without one."""

from __future__ import annotations

from pathlib import Path

import pytest

import headless
from headless import command, visit
from hopstate.runs.report import write_report

# run in the page: overflow, minimum text contrast, empty elements, ids of broken links
CHECK = """
const doc = frame.contentDocument, view = frame.contentWindow, seen = {};
const parse = c => { const m = c.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
const light = c => { const f = c.slice(0, 3).map(v => linear(v / 255));
  return .2126 * f[0] + .7152 * f[1] + .0722 * f[2]; };
const ground = e => { for (; e; e = e.parentElement) { const c = parse(view.getComputedStyle(e).backgroundColor);
  if (c[3] > 0) return c; } return [255, 255, 255, 1]; };
let least = 99, smallest = 99;
for (const e of doc.body.querySelectorAll('*')) {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!own || ['TITLE', 'title', 'desc', 'STYLE'].includes(e.tagName)) continue;
  const style = view.getComputedStyle(e), ink = parse(style.color);
  const [a, b] = [light(ink), light(ground(e))].sort((x, y) => y - x);
  least = Math.min(least, (a + .05) / (b + .05));
  smallest = Math.min(smallest, parseFloat(style.fontSize));
}
seen.overflow = doc.documentElement.scrollWidth - doc.documentElement.clientWidth;
seen.width = doc.documentElement.clientWidth;
seen.least = least;
seen.smallest = smallest;
seen.flat = [...doc.querySelectorAll('img, table')].filter(e => e.getBoundingClientRect().height < 10).length;
seen.tallest = Math.max(...[...doc.querySelectorAll('td, tbody th, caption')].map(e =>
  e.getBoundingClientRect().height / parseFloat(view.getComputedStyle(e).lineHeight)));
const named = [...doc.querySelectorAll('table')].find(e => e.caption.textContent == 'Results on uci');
seen.rows = Math.max(...[...named.tBodies[0].rows].map(e =>
  e.getBoundingClientRect().height / parseFloat(view.getComputedStyle(e).lineHeight)));
seen.verdict = doc.querySelector('.verdict').getBoundingClientRect().bottom;
seen.loaded = view.performance.getEntriesByType('resource').length;
seen.dark = view.matchMedia('(prefers-color-scheme: dark)').matches;
document.getElementById('found').textContent = JSON.stringify(seen);
"""


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> str:
    """A headless browser's command, or a skip."""
    return command()


def look(browser: str, report: Path, folder: Path, width: int, *options: str) -> dict:
    """Return what CHECK finds in a report shown at a width in CSS pixels."""
    return headless.look(browser, folder, report.read_text(), CHECK, width, *options)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with every kind of section, long names among them."""
    from test_report import make_run, result_line

    from hopstate.runs.reproduce import append_line

    home = tmp_path_factory.mktemp("browser")
    for seed in range(3):
        make_run(home / f"static/gcn-{seed}", "gcn", "minesweeper", {"roc_auc": 0.8 + 0.01 * seed}, seed=seed)
    make_run(
        home / "static/wide", "gcn", "minesweeper", {"roc_auc": 0.85}, dim=64, a_setting_of_a_long_name="value" * 9
    )
    link = {
        "average_precision": 0.9,
        "roc_auc": 0.91,
        "historical_average_precision": 0.8,
        "historical_roc_auc": 0.79,
        "inductive_average_precision": 0.7,
        "new_average_precision": 0.85,
    }
    make_run(home / "links/dyg", "dyg-mamba", "uci", link)
    for run in range(3):
        append_line(home / "results.jsonl", result_line("gcn/minesweeper", run, roc_auc=0.88 + 0.01 * run))
    append_line(home / "results.jsonl", result_line("sage/minesweeper", 0, roc_auc=0.93))
    return write_report([home / "static", home / "links"], home / "report.html", results_file=home / "results.jsonl")


@pytest.mark.parametrize(
    ("width", "options"), [(390, ()), (1280, ()), (390, ("--blink-settings=preferredColorScheme=0",))]
)
def test_the_report_fits_and_is_readable(
    browser: str, report: Path, tmp_path: Path, width: int, options: tuple[str, ...]
) -> None:
    seen = look(browser, report, tmp_path, width, *options)
    assert seen["width"] == width
    assert seen["dark"] == bool(options)
    assert seen["overflow"] <= 0
    assert seen["least"] >= 4.5
    assert seen["smallest"] >= 9
    assert seen["flat"] == 0
    assert seen["tallest"] < 8  # lines per cell: no column is narrower than its words
    assert seen["rows"] <= 5  # the numbers of a row are on one line
    assert seen["verdict"] < 700  # the first screen has the result
    assert seen["loaded"] == 0  # nothing was fetched


def test_the_report_prints(browser: str, report: Path, tmp_path: Path) -> None:
    paper = tmp_path / "report.pdf"
    visit(browser, report, f"--print-to-pdf={paper}", "--no-pdf-header-footer")
    assert paper.read_bytes().startswith(b"%PDF")
    assert paper.stat().st_size > 10_000
