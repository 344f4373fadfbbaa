"""Which group of runs is best: what validation says, never the test split; a figure that chose is no measurement."""

from __future__ import annotations

from collections.abc import Sequence

from hopstate.runs.report.collect import Group
from hopstate.runs.reproduce import tables
from hopstate.runs.reproduce.statistics import summary

WORDS = "The best is what validation puts first; its test figure is shown and chose nothing."


def rivals(groups: Sequence[Group]) -> list[Group]:
    """Return the groups that are no floors; all of them where every one is."""
    return [group for group in groups if group.method not in tables.FLOORS] or list(groups)


def ranked(groups: Sequence[Group], metric: str) -> list[Group]:
    """Return the groups that are no floors and have a validation figure, the best of it first."""
    found = []
    for group in rivals(groups):
        one = summary(group.values(metric, "val"))
        if one is not None:
            found.append((tables.rank(metric, one.mean), group.label, group))
    return [group for _, _, group in sorted(found, key=lambda each: each[:2])]


def chosen(groups: Sequence[Group], metric: str) -> Group | None:
    """Return the group that validation puts first, None where there is but one or none has a validation figure."""
    found = ranked(groups, metric)
    return found[0] if found and len(groups) > 1 else None
