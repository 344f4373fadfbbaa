"""Make docs/recipes.md: measured results and their cost.

    python docs/made/recipes.py            writes the page
    python docs/made/recipes.py --check    fails if the page is not current

The first table is from docs/results.jsonl. Results of the second table must occur in the page under benchmarks/results
that it names.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from hopstate.runs.reproduce import Line, all_recipes, read_lines, rows
from hopstate.runs.summary import metric_label

ROOT = Path(__file__).parents[2]
PAGE, LINES = ROOT / "docs" / "recipes.md", ROOT / "docs" / "results.jsonl"
RESULTS = ROOT / "benchmarks" / "results"
ADDRESS = "https://github.com/hopstate/hopstate/blob/main/benchmarks/results/"

# task, command, result, cost, page of results, text that the page must contain
MEASURED: tuple[tuple[str, str, str, str, str, tuple[str, ...]], ...] = (
    (
        "labels of 10,000 nodes that depend on nodes a few hops away",
        "hopstate reproduce gmn/minesweeper-tokens",
        "ROC AUC 92.05 ± 0.52, ten splits",
        "about 130 s a run",
        "2026-11-22-gmn-tokens.md",
        ("**92.05** | 0.52", "about 130\nseconds of one core"),
    ),
    (
        "labels up to 80 hops away along paths and rings",
        "python benchmarks/gmn_range.py --seconds 5",
        "accuracy 100; message passing 45 to 55",
        "5 s of training, 41 MiB at 80 steps",
        "2026-11-24-graph-mamba.md",
        (
            "| test accuracy | 100 | 100 | 100 | 100 | 100 | 100 |",
            "| MiB above the start | 31 | 35 | 41 | 36 | 45 | 63 |",
        ),
    ),
    (
        "one of 8 to 128 leaves of a tree, from its root",
        "python benchmarks/gmn_range.py --kinds tree --depths 3,5,7 --seconds 8",
        "accuracy 98 to 100",
        "8 s of training, 61 MiB at depth 7",
        "2026-11-24-graph-mamba.md",
        ("| **GMN** | 98 (99) | 99 (99) | 100 (99) | 98 | 24.2 | 61 |",),
    ),
    (
        "classes of 12,000 nodes with 520,000 edges",
        "hopstate fit sage --data ...",
        "",
        "0.72 s per epoch",
        "2026-11-23-speed.md",
        ("| sage | 128 | 0.72 |",),
    ),
    (
        "prepare 100,000,000 events with string ids",
        "hopstate prepare events.parquet --out STORE --memory 2GiB",
        "",
        "33 s, 1.70 GiB",
        "2026-11-23-large-events.md",
        ("| **33 s** | **46 s** | **3.04 M** | **1.70 GiB** |",),
    ),
    (
        "queries at 500 events per second",
        "hopstate serve runs/recency",
        "a pair in 1.4 ms (p50), 4.8 ms (p99)",
        "24% of a core",
        "2026-11-23-live-run.md",
        ("| recency | 2.9/7.2 | 1.4/4.8 | 4.8/8.8 | 1.8/0.6/3.0 | 24% |",),
    ),
)
HEAD = """# Recipes that work

Measured results with their cost. The first table is from the runs in
[results.jsonl](https://github.com/hopstate/hopstate/blob/main/docs/results.jsonl), and the second from pages in
`benchmarks/results`. For your own data, [choose a model](choose.md) first. `hopstate fit` then chooses settings, and
`--dry-run` measures the cost.

## Runs of recipes

`hopstate reproduce NAME` runs a recipe. Recipes that are not in the table have not been run. Test metrics are in
percent, as mean ± standard deviation over runs. CPU time and peak memory are medians per run. Machines differ by up to
a factor of two.

| recipe | metric | measured | runs | published | CPU time, s | memory, MB |
|---|---|---|---|---|---|---|
"""
BETWEEN = """
## Other settings

| task | command | result | cost (one core of an AMD EPYC, unless said) |
|---|---|---|---|
"""


def row(name: str, lines: Sequence[Line]) -> str:
    """Return the row of a recipe in the first table."""
    metric = lines[0]["metric"]
    values = [100 * line["metrics"]["test"][metric] for line in lines]
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    known_recipe = all_recipes().get(name)
    figures = {} if known_recipe is None else {p.metric: p for p in known_recipe.published}
    published = f"{100 * figures[metric].mean:.2f}" if metric in figures else ""
    cells = [f"`{name}`", metric_label(metric), f"{statistics.mean(values):.2f}{spread}", str(len(values)), published]
    for key, form in (("cpu_seconds", "{:.0f}"), ("peak_memory_mb", "{:,.0f}")):
        known = [line[key] for line in lines if line.get(key) is not None]
        cells.append(form.format(statistics.median(known)) if known else "not measured")
    return f"| {' | '.join(cells)} |"


def page() -> str:
    """Return the page.

    Raises:
        LookupError: a result is not in its page under benchmarks/results.
    """
    measured = {
        one.recipe: [line for line in one.lines if line["metric"] in line["metrics"].get("test", {})]
        for one in rows(read_lines(LINES))  # a run that was made twice counts once, as in the README
        if not one.altered
    }
    made = "\n".join(row(name, lines) for name, lines in sorted(measured.items()) if lines)
    text = HEAD + made + "\n" + BETWEEN
    for what, command, figure, cost, source, words in MEASURED:
        text_of_source = (RESULTS / source).read_text("utf-8")
        for word in words:
            if word not in text_of_source:
                raise LookupError(f"{word!r} is not in {source}")
        text += f"| {what} | `{command}` | {figure or 'cost only'} | [{cost}]({ADDRESS}{source}) |\n"
    return text


def main() -> int:
    if "--check" in sys.argv[1:]:
        same = PAGE.read_text("utf-8") == page()
        print("the page is current" if same else f"{PAGE} is not current: python docs/made/recipes.py")
        return 0 if same else 1
    PAGE.write_text(page(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
