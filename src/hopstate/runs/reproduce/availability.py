"""Whether the data of a recipe are on disk, and how to get them otherwise."""

from __future__ import annotations

from collections.abc import Iterable

from hopstate.datasets.registry import Dataset, find_dataset, on_disk
from hopstate.io.cache import cache_folder


def how_to_get(data: str, *, fetchable: bool = True) -> str:
    """Return what to do for a data set that is not on disk; nothing where it is, or is made here.

    Args:
        data: name of the data set.
        fetchable: also say so of those that are downloaded when first used.
    """
    entry = find_dataset(data)
    if entry is None or on_disk(entry) != "no" or (_fetchable(entry) and not fetchable):
        return ""
    return f"{data}: {_instruction(entry).replace('NAME', data)}"


def missing(names: Iterable[str]) -> list[str]:
    """Return what to do for all data sets that are not on disk, those of one source together."""
    same: dict[str, list[str]] = {}
    for data in dict.fromkeys(names):
        entry = find_dataset(data)
        if entry is not None and on_disk(entry) == "no":
            same.setdefault(_instruction(entry), []).append(data)
    return [f"{', '.join(group)}: {text}" for text, group in same.items()]


def _fetchable(entry: Dataset) -> bool:
    return bool(entry.files or entry.pyg or entry.ogb or entry.name.startswith("tgb"))


def _instruction(entry: Dataset) -> str:
    """Return how to get a data set; NAME stands for its name."""
    if _fetchable(entry):
        reader = "" if entry.files or entry.name.startswith("tgb") else f" by {entry.loader}"
        return f"downloaded on first use{reader} from {entry.address}"
    if entry.kind == "link":
        files = ", ".join(f"ml_NAME{ending}" for ending in (".csv", ".npy", "_node.npy"))
        folder = cache_folder() / "temporal" / "NAME"
        return f"get it from {entry.address}, run DyGLib's preprocessing, and put {files} into {folder}"
    return f"no reader for it yet; get it from {entry.address} and give your files to hopstate fit"
