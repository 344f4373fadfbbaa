"""Published against measured: as a table for the terminal, and as Markdown between two marks of a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hopstate.errors import FormatError, MissingFileError
from hopstate.evaluation.metrics import FULL, of_class
from hopstate.io.files import write_text
from hopstate.io.opening import exists, read_text
from hopstate.runs.reproduce.recipes import Published, all_recipes
from hopstate.runs.reproduce.results import Line, Row, rows
from hopstate.runs.reproduce.statistics import Difference, Summary, compare, summary
from hopstate.sampling.negatives import parse_metric

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
WORDS = {
    "mean_average_precision": "mean AP",
    "mrr": "MRR",
    "met_mrr": "MRR where the pair met before",
    "new_pair_mrr": "MRR of new pairs",
    "new_node_mrr": "MRR with new nodes",
    "known_mrr": "MRR among those met before",
    "ndcg@10": "NDCG@10",
    "roc_auc": "ROC AUC",
    "average_precision": "AP",
    "macro_f1": "macro F1",
    "balanced_accuracy": "accuracy-SBM",
    "mae": "MAE",
}
FLOORS = ("recency", "edgebank", "pair-trees")  # methods of event streams that others must stand above
ERRORS = ("mae", "rmse", "loss")


@dataclass(frozen=True)
class Compared:
    """One figure of a recipe: published, measured, and how they differ.

    Args:
        row: the runs.
        metric: the column of the test metrics.
        measured: over the runs.
        published: None where no paper reports it.
        difference: None without a published figure.
    """

    row: Row
    metric: str
    measured: Summary
    published: Published | None
    difference: Difference | None


def compared(lines: Sequence[Line]) -> list[Compared]:
    """Return every published figure beside what was measured, and the recipes' own metrics where none is published."""
    found = []
    for row in rows(lines):
        recipe = all_recipes().get(row.recipe)
        own = recipe is not None and recipe.data == row.data  # other data have other figures
        known = {p.metric: p for p in recipe.published} if recipe is not None and own else {}
        for metric in dict.fromkeys((row.metric, *known)):
            measured, published = summary(row.values(metric)), known.get(metric)
            if measured is not None:
                difference = None if published is None else compare(measured, published)
                found.append(Compared(row, metric, measured, published, difference))
    return found


def metric_words(metric: str, positive: str | None = None) -> str:
    """Return a metric's name as people write it: "new_many_mrr" is "MRR, many negatives, new nodes".

    Args:
        metric: its name.
        positive: the positive class of two, or None.
    """
    name, strategy, new = parse_metric(metric)
    parts = [strategy.label] if strategy.name != "random" else []
    parts += ["new nodes"] if new else []
    return ", ".join([of_class(name, positive, WORDS.get(name, name.replace("_", " "))), *parts])


def floor_words(name: str) -> str:
    """Return a floor's name as people write it: "common_neighbors" is "common neighbors"."""
    return name.replace("_", " ")


def below_words(
    values: Mapping[str, float],
    floors: Mapping[str, Mapping[str, float]],
    events: Mapping[str, int | None] | None = None,
) -> str:
    """Return in words which floors links do not stand above, by kind of negatives; "" where there is none.

    A figure that is no number tells nothing. "all" are all kinds where there are several; that nodes are new is said
    where some metrics are of all nodes. Kinds that fewer than `FULL` events tell stand apart, with how many, where
    others are told from more, and are none of "all".

    Args:
        values: metric → mean of a method, all shares of 1, the larger the better.
        floors: name → the same of what needs no such model.
        events: metric → how many events tell it, where that is known.

    >>> below_words({"mrr": 0.9, "new_historical_mrr": 0.7}, {"recency": {"mrr": 0.8, "new_historical_mrr": 0.8}})
    'recency on historical, new nodes'
    >>> floors = {"recency": {"mrr": 0.9, "new_mrr": 0.8}}
    >>> below_words({"mrr": 0.9, "new_mrr": 0.7}, floors, {"mrr": 900, "new_mrr": 11})
    'recency on random (of 11 events: random, new nodes)'
    """
    new, said = all(m.startswith("new_") for m in values), []
    counts = {m: count for m in values if (count := (events or {}).get(m)) is not None}
    few = {m: count for m, count in counts.items() if count < min(FULL, max(counts.values()))}
    for name, own in floors.items():
        words = {m: kind_words(m.removeprefix("new_") if new else m) for m in values if m in own}
        under = dict.fromkeys(words[m] for m in words if values[m] <= own[m] and m not in few)
        above = {words[m] for m in words if values[m] > own[m] and m not in few}
        every = len(under) > 1 and not above
        parts = [f"on {'all' if every else '; '.join(under)}"] if under else []
        apart = dict.fromkeys(words[m] for m in words if values[m] <= own[m] and m in few)
        if apart:
            parts.append(f"(of {max(few.values()):,} events: {'; '.join(apart)})")
        if parts:
            said.append(" ".join([floor_words(name), *parts]))
    return ", ".join(said)


def kind_words(metric: str) -> str:
    """Return the kind of negatives of a metric of links, and "new nodes": "new_many_mrr" is "many, new nodes"."""
    _, strategy, new = parse_metric(metric)
    return f"{strategy.name}, new nodes" if new else strategy.name


def is_error(metric: str) -> bool:
    """Return whether a metric measures an error: in its own unit, the smaller the better; others are shares of 1."""
    return metric.split("_")[-1] in ERRORS


def setting_words(metric: str) -> str:
    return "links with new nodes" if metric.startswith("new_") else "all links"


def told_from(metric: str, metrics: Mapping[str, Any]) -> int | None:
    """Return how many events a metric of links is told from, by the metrics of its split; None where they do not say.

    >>> told_from("new_historical_average_precision", {"events": 1350, "new_events": 11})
    11
    """
    count = metrics.get("new_events" if metric.startswith("new_") else "events")
    return None if count is None else int(count)


def few_words(events: int | None, of: str) -> str:
    """Return a remark where events are so few that chance moves their figures; "" where they are not, or unknown.

    >>> few_words(11, "links with new nodes")
    'Links with new nodes are told from 11 events alone: chance moves such figures by points.'
    """
    if events is None or events >= FULL:
        return ""
    return f"{of[:1].upper()}{of[1:]} are told from {events:,} events alone: chance moves such figures by points."


def own_event_words(metrics: Mapping[str, Any]) -> str:
    """Return a remark for each kind of negatives of which many are their own event; "" if there is none.

    Such a negative has the score of its event. At any threshold, about 1 event is then found with `share` negatives.

    Args:
        metrics: of a split of links, with `own_event_share` for each such kind.

    >>> own_event_words({"average_precision": 0.84, "own_event_share": 0.173})
    'All links: 17% of random negatives are their own event; average_precision cannot exceed about 0.85, roc_auc 0.91.'
    """
    said = []
    for name, share in metrics.items():
        if name.endswith("own_event_share"):
            kind = kind_words(name).removesuffix(", new nodes")
            of = f"{setting_words(name)}: {share:.0%} of {kind} negatives are their own event"
            most = f"average_precision cannot exceed about {1 / (1 + share):.2f}, roc_auc {1 - share / 2:.2f}"
            said.append(f"{of[:1].upper()}{of[1:]}; {most}.")
    return " ".join(said)


def rank(metric: str, mean: float) -> float:
    """Return the key that sorts means best first; what is no number comes last."""
    return math.inf if math.isnan(mean) else mean if is_error(metric) else -mean


def scaled(metric: str, value: float) -> float:
    """Return a value as it is shown: in percent where the metric is a share of 1."""
    return value if is_error(metric) else 100 * value


def figure(metric: str, mean: float, std: float | None) -> str:
    """Return mean ± std, in percent where the metric is a share of 1."""
    digits = 4 if is_error(metric) else 2
    spread = "" if std is None else f" ± {scaled(metric, std):.{digits}f}"
    return f"{scaled(metric, mean):.{digits}f}{spread}"


def seconds(value: float | None) -> str:
    """Return a duration for people."""
    if value is None:
        return ""
    return f"{value:.1f} s" if value < 100 else f"{value / 60:.1f} min" if value < 6000 else f"{value / 3600:.1f} h"


def megabytes(value: float | None) -> str:
    """Return an amount of memory for people; value in 10^6 bytes."""
    return "" if value is None else f"{value:.0f} MB"


def cells(one: Compared) -> dict[str, str]:
    row = one.row
    return {
        "data": row.data,
        "recipe": row.label,
        "metric": metric_words(one.metric),
        "published": "" if one.published is None else figure(one.metric, one.published.mean, one.published.std),
        "measured": figure(one.metric, one.measured.mean, one.measured.std),
        "runs": str(one.measured.runs),
        "test": "" if one.difference is None else str(one.difference),
        "time a run": seconds(_time(row)),
        "peak memory": megabytes(row.mean("peak_memory_mb")),
    }


def _time(row: Row) -> float | None:
    """Return the mean time of a run: the processor's, which other work does not lengthen; the clock's with a GPU."""
    gpu = any(line["gpu"] for line in row.lines)
    return (None if gpu else row.mean("cpu_seconds")) or row.mean("wall_seconds") or row.mean("seconds")


def show(lines: Sequence[Line]) -> None:
    """Print published against measured."""
    from rich.table import Table
    from rich.text import Text

    from hopstate.io.output import screen

    found, notes = [], []
    for one in compared(lines):
        made = cells(one)
        if one.row.altered:
            if made["recipe"] not in notes:
                notes.append(made["recipe"])
            made["recipe"] = f"{one.row.recipe} [{notes.index(made['recipe']) + 1}]"
        found.append(made)
    console = screen()
    if not found:
        console.print("no results yet")
        return
    table = Table(title="test figures, mean ± standard deviation over runs; shares in percent")
    columns = [name for name in found[0] if name != "data" and any(made[name] for made in found)]
    for name in columns:
        table.add_column(name, no_wrap=name == "measured", overflow="fold")
    for made in found:
        table.add_row(*(Text(made[name]) for name in columns))
    console.print(table)
    for place, note in enumerate(notes, 1):
        console.print(Text(f"[{place}] {note}"), soft_wrap=True)


def markdown(lines: Sequence[Line]) -> str:
    """Return the table of unaltered runs, by data set, as Markdown."""
    found = [cells(one) for one in compared([line for line in lines if not line["altered"]])]
    if not found:
        return "No runs yet."
    columns = list(found[0])
    marks = ["---"] * 3 + ["---:"] * 3 + ["---"] + ["---:"] * 2
    out = [f"| {' | '.join(columns)} |", f"| {' | '.join(marks)} |"]
    for data in sorted({one["data"] for one in found}):
        out += [f"| {' | '.join(one[name] for name in columns)} |" for one in found if one["data"] == data]
    hardware = sorted({f"{line['gpu'] or line['processor']}, {line['threads']} thread(s)" for line in lines})
    versions = sorted({line["version"] for line in lines})
    return "\n".join(
        [*out, "", f"hopstate {', '.join(versions)}; {'; '.join(hardware)}. Time is the processor's, loading included."]
    )


def write_markdown(path: str | Path, lines: Sequence[Line]) -> bool:
    """Put the table between the marks of a file; return whether it changed.

    Raises:
        MissingFileError: no such file.
        FormatError: it does not hold the two marks, once each and in order.
    """
    path = Path(path)
    if not exists(path):
        raise MissingFileError(f"there is no file {path}")
    text = read_text(path)
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise FormatError(f"{path} does not say where the table goes; write {BEGIN} and {END} on lines of their own")
    head, rest = text.split(BEGIN)
    new = f"{head}{BEGIN}\n\n{markdown(lines)}\n\n{END}{rest.split(END)[1]}"
    if new != text:
        write_text(path, new)
    return new != text
