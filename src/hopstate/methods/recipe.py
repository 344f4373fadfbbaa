"""What a recipe is: one row of a published table, as the settings of a run and the figures it is held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

SPLITS = ("split.number", "loop.seed")  # what differs between the runs of a recipe over stored or drawn splits
SEEDS = ("loop.seed",)


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published figure: a reference, never a target to be tuned to.

    Args:
        metric: the column of a run's test metrics that it is comparable with.
        mean: in the metric's own unit; accuracies and the like are shares of 1.
        std: over runs, or None where none was published.
        runs: how many it is the mean of; 0 where that was not said.
        source: paper and table.
    """

    metric: str
    mean: float
    std: float | None
    runs: int
    source: str


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A named run configuration of a table row.

    Args:
        name: "method/data", with "-variant" after it where there are several.
        method: the method's name.
        data: name of the data set.
        metric: the column of the test metrics that the row is about.
        settings: dotted settings of the run; what is not named stays at its default, the paper's stated value.
        published: figures of papers; empty where no paper reports this row.
        vary: settings that take the number of the run, so that runs are independent.
        runs: how many runs the row is a mean of.
        note: what the paper leaves open, or does otherwise.
        first: name of the recipe of links whose run of the same number is begun from and frozen; "" for none.
    """

    name: str
    method: str
    data: str
    metric: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    published: tuple[Published, ...] = ()
    vary: tuple[str, ...] = SEEDS
    runs: int = 10
    note: str = ""
    first: str = ""

    @property
    def reference(self) -> Published | None:
        """The published figure of the recipe's own metric, or None."""
        return next((p for p in self.published if p.metric == self.metric), None)


def short(recipe: Recipe, *, epochs: int, runs: int = 1, of: int = 100, **settings: Any) -> Recipe:
    """Return a recipe of links cut to what a CPU does in minutes: few epochs, random negatives alone.

    Args:
        epochs: that are trained, the learning rate as it was.
        runs: of the row.
        of: epochs that the paper trains at most.
        settings: more settings, dots written as double underscores.
    """
    cut = {"loop.epochs": epochs, "evaluation.strategies": ["random"]}
    return replace(
        recipe,
        name=f"{recipe.name}-short",
        settings={**recipe.settings, **cut, **{key.replace("__", "."): value for key, value in settings.items()}},
        published=tuple(
            p for p in recipe.published if p.metric.removeprefix("new_") in ("average_precision", "roc_auc")
        ),
        runs=runs,
        note=f"for one CPU core: {epochs} epoch{'s' * (epochs > 1)} where the paper trains up to {of}"
        + "".join(f", {key.replace('__', '.')}={value}" for key, value in settings.items())
        + (f"; {recipe.note}" if recipe.note else ""),
    )


def percent(metric: str, mean: float, std: float | None, runs: int, source: str) -> Published:
    """Return a figure that was published in percent."""
    scaled = None if std is None else round(std / 100, 6)
    return Published(metric=metric, mean=round(mean / 100, 6), std=scaled, runs=runs, source=source)
