"""Links by kind of negatives in `hopstate compare`, beside the floors, and in words what a method is no better than."""

from __future__ import annotations

from typing import Any

_AP = "average_precision"
KINDS = tuple(
    f"{new}{kind}" for kind in (_AP, f"historical_{_AP}", f"inductive_{_AP}", "many_mrr") for new in ("", "new_")
)


def with_floors(rows: list[dict[str, Any]], floors: dict[str, dict[str, float | None]]) -> list[dict[str, Any]]:
    """Return the rows with what each does not stand above, then a row a floor that is no method of them.

    Floors are told of one another.
    """
    from hopstate.runs.reproduce.tables import FLOORS, below_words

    names, events = {row["method"] for row in rows}, _events(rows)
    kinds = dict.fromkeys(metric for row in rows for metric in row["kinds"])
    others = {
        name: {m: value for m in kinds if (value := values.get(m)) is not None}
        for name, values in floors.items()
        if name not in names
    }
    rivals = others | {r["method"]: _means(r) for r in rows if r["method"] in FLOORS}

    def below(name: str, own: dict[str, float]) -> str:
        return below_words(own, {rival: values for rival, values in rivals.items() if rival != name}, events)

    return [row | {"below": below(row["method"], _means(row))} for row in rows] + [
        {
            "method": name,
            "floor": True,
            "kinds": {m: (value, None) for m, value in figures.items()},
            "below": below(name, figures),
        }
        for name, figures in others.items()
        if figures
    ]


def _events(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Return how many events tell a metric, where a row says; those of earlier versions do not."""
    return {m: count for row in rows for m, count in row.get("events", {}).items() if count is not None}


def _means(row: dict[str, Any]) -> dict[str, float]:
    return {metric: mean for metric, (mean, _) in row["kinds"].items()}


def show_kinds(rows: list[dict[str, Any]], data: str) -> None:
    """Print links by kind of negatives, added floors below, and in words what each method does not stand above.

    The last row says how many events a figure is told from, and what of them are few is said below.
    """
    from rich.table import Table

    from hopstate.io.output import screen
    from hopstate.runs.reproduce import tables

    metrics = list(dict.fromkeys(metric for row in rows for metric in row.get("kinds", {})))
    if len(metrics) < 2:
        return
    table = Table(title=f"{data}: AP (many: MRR) in percent, by kind of negatives, mean ± standard deviation over runs")
    table.add_column("method")
    for metric in metrics:
        table.add_column(tables.kind_words(metric), justify="right")
    table.add_column("no better than")
    for row in rows:
        kinds = row["kinds"]
        figures = [tables.figure(m, *kinds[m]) if m in kinds else "" for m in metrics]
        # a floor that was asked for is a method like the others
        name = f"{tables.floor_words(row['method'])} (floor)" if row.get("floor") else row["method"]
        table.add_row(name, *figures, row["below"])
    events = _events(rows)
    if events:
        table.add_section()
        table.add_row("events judged", *(f"{events[m]:,}" if m in events else "" for m in metrics), "")
    screen().print(table)
    counts = {tables.setting_words(m): count for m, count in events.items()}
    for remark in filter(None, (tables.few_words(count, of) for of, count in counts.items())):
        print(remark)
