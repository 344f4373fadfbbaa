"""Recipes: rows of published tables with the settings of their runs, read from the methods' `recipes.yaml`.

An entry is named "method/data", with "-variant" after it where there are several. `base` names an earlier entry of the
same file, whose fields it takes; `settings` are merged, other fields are replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import yaml

from hopstate.datasets.registry import Dataset, find_dataset, on_disk
from hopstate.errors import ConfigError, nearest
from hopstate.io.files import cache_folder
from hopstate.methods import recipe_files


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published result: a reference, never a target to be tuned to.

    Args:
        metric: the column of a run's test metrics that it is comparable with.
        mean: in the metric's own unit; accuracies and the like are shares of 1.
        std: over runs, or None if none was published.
        runs: how many it is the mean of; 0 if unknown.
        source: paper and table.
    """

    metric: str
    mean: float
    std: float | None = None
    runs: int = 0
    source: str


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The run configuration of one row of a published table.

    Args:
        name: "method/data" or "method/data-variant".
        method: the method's name.
        data: name of the data set.
        metric: the column of the test metrics that the row is about.
        settings: dotted settings of the run; the others have their defaults, the values that the paper states.
        published: results of papers; empty if no paper reports this row.
        vary: settings that take the number of the run, so that runs are independent.
        runs: how many runs the row is a mean of.
        note: what the paper leaves open, or does otherwise.
        first: name of the recipe whose run of the same number this one begins from and freezes; "" for none.
    """

    name: str
    method: str
    data: str
    metric: str = "average_precision"
    settings: Mapping[str, Any] = field(default_factory=dict)
    published: tuple[Published, ...] = ()
    vary: tuple[str, ...] = ("loop.seed",)
    runs: int = 10
    note: str = ""
    first: str = ""

    @property
    def reference(self) -> Published | None:
        return next((p for p in self.published if p.metric == self.metric), None)


@cache
def all_recipes() -> dict[str, Recipe]:
    """Return all recipes by name.

    Raises:
        ConfigError: two have the same name, or a field of one is unknown.
    """
    found: dict[str, Recipe] = {}
    for path in recipe_files():
        for name, entry in yaml.load(path.read_text("utf-8"), _LOADER).items():
            if name in found:
                raise ConfigError(f"there are two recipes {name!r}; one is in {path}")
            try:
                found[name] = _recipe(name, entry, found)
            except (TypeError, KeyError) as error:
                raise ConfigError(f"recipe {name!r} in {path} cannot be read: {error}") from error
    return found


# libyaml reads the files ten times as fast, where PyYAML was built with it
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _recipe(name: str, entry: dict[str, Any], known: Mapping[str, Recipe]) -> Recipe:
    own = dict(entry)
    method, _, data = name.partition("/")
    base = known[own.pop("base")] if "base" in own else Recipe(name=name, method=method, data=data)
    own["settings"] = {**base.settings, **own.get("settings", {})}
    if "published" in own:
        own["published"] = tuple(Published(**one) for one in own["published"])
    if "vary" in own:
        own["vary"] = tuple(own["vary"])
    return replace(base, name=name, **own)


def find_recipes(pattern: str) -> list[Recipe]:
    """Return the recipe of a name, or all whose name matches a pattern such as gmn/* or */minesweeper.

    Raises:
        ConfigError: there is none; the nearest is suggested.
    """
    known = all_recipes()
    found = [recipe for name, recipe in known.items() if fnmatchcase(name, pattern)]
    if not found:
        named = [name for name in known if pattern.strip("*/") in name] if pattern.strip("*/") else []
        hint = f"; {pattern!r} is part of {', '.join(named[:5])}" if named else nearest(pattern, known)
        raise ConfigError(f"there is no recipe {pattern!r}{hint}; `hopstate reproduce --list` shows all")
    return found


def how_to_get(data: str, *, fetchable: bool = True) -> str:
    """Return how to get a data set; "" if it is on disk or generated.

    Args:
        data: name of the data set.
        fetchable: also describe data sets that are downloaded on first use.
    """
    entry = find_dataset(data)
    if entry is None or on_disk(entry) != "no" or (entry.fetchable and not fetchable):
        return ""
    return f"{data}: {_instruction(entry).replace('NAME', data)}"


def missing(names: Iterable[str]) -> list[str]:
    """Return how to get the data sets that are not on disk, one text for those of one source."""
    same: dict[str, list[str]] = {}
    for data in dict.fromkeys(names):
        entry = find_dataset(data)
        if entry is not None and on_disk(entry) == "no":
            same.setdefault(_instruction(entry), []).append(data)
    return [f"{', '.join(group)}: {text}" for text, group in same.items()]


def _instruction(entry: Dataset) -> str:
    """Return how to get a data set; NAME is the placeholder of its name."""
    if entry.fetchable:
        reader = "" if entry.file else f" by {entry.loader}"
        return f"downloaded on first use{reader} from {entry.address}"
    if entry.kind == "link":
        files = ", ".join(f"ml_NAME{ending}" for ending in (".csv", ".npy", "_node.npy"))
        folder = cache_folder() / "temporal" / "NAME"
        return f"get it from {entry.address}, run DyGLib's preprocessing, and put {files} into {folder}"
    return f"no reader for it yet; get it from {entry.address} and give your files to hopstate fit"
