"""What the columns of all pieces hold together: ids numbers or texts, times of one unit, labels of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.event_build import UNITS
from hopstate.data.prepare.piece_ids import COUNTS
from hopstate.data.prepare.units import check_units
from hopstate.data.readers.ids import EXACT
from hopstate.errors import ConfigError, DataError

Fact = dict[str, Any]


@dataclass(frozen=True)
class Settled:
    """What is written.

    Args:
        whole: whether the ids of sources and targets are whole numbers.
        text: the ids are texts in the end.
        t: dtype of times.
        divide: times are so many times finer than their unit.
        unit: of times; "" where it is unknown.
        zone: as `EventStream.dates`.
        in_order: the events stand in the order of time.
    """

    whole: tuple[bool, bool]
    text: bool
    t: np.dtype[Any]
    divide: int
    unit: str
    zone: str
    in_order: bool


def settle(facts: Sequence[Fact], files: Sequence[Path], unit: str) -> Settled:
    """Return what all pieces make together.

    Args:
        facts: of each piece, in order.
        files: the source's.
        unit: of time that is asked for, or "".

    Raises:
        DataError: pieces that cannot stand in one table, or times in two units; the files are named.
        ConfigError: a unit that dates are not counted in.
    """
    some = [one for one in facts if one["count"]]
    if not some:
        timed = " and a time" if not facts or "time" in facts[0] else ""
        raise DataError(f"{files[0]}: no row has ids{timed}{_first_bad(facts, files)}")
    whole = (_whole(some, files, 0), _whole(some, files, 1))
    text, edges = not all(whole), "time" not in some[0]
    for side in (0, 1):  # edges take them for texts where the other end has texts, events do not
        if whole[side] and not (edges and text):
            _check_negative(some, files, side)
    if edges:
        return Settled(whole, text, np.dtype(np.int64), 1, "", "", in_order=True)
    kind = _kind_of_times(some, files)
    if kind != "date" and not unit:
        check_units(some, files)
    divide, t, zone = 1, np.dtype(np.int64 if kind == "integer" else np.float64), ""
    if kind == "date":
        units = list(UNITS)
        exact = max((fact["unit"] for fact in some), key=units.index)
        unit, t = unit or exact, np.dtype(np.int64)
        if unit not in UNITS:
            raise ConfigError(f"{files[0]} holds dates, which are counted in {', '.join(UNITS)}, not in {unit!r}")
        if UNITS[unit] > UNITS[exact]:
            raise DataError(f"{files[0]}: dates finer than a whole {unit}; take time_unit={exact} or round them")
        divide = UNITS[unit]
        zones = {fact["zone"] for fact in some}
        zone = zones.pop() if len(zones) == 1 else "UTC"
    order = all(one["sorted"] for one in some)
    order &= all(a["last"] <= b["first"] for a, b in pairwise(some))
    return Settled(whole, text, t, divide, unit, zone, order)


def _first_bad(facts: Sequence[Fact], files: Sequence[Path]) -> str:
    for fact in facts:
        if "first_bad" in fact:
            line, reason, cells = fact["first_bad"]
            return f"; the first, {files[fact['file']]} line {line} ({cells[:80]}), {_said(reason)}"
    return ""


def _said(reason: str) -> str:
    return reason if reason.startswith("has ") else f"has {reason}"


def _whole(facts: Sequence[Fact], files: Sequence[Path], side: int) -> bool:
    """Return whether the ids of one side are whole numbers in all files."""
    sums: dict[int, dict[str, int]] = {}
    for fact in facts:
        one = fact["ids"][side]
        if one["kind"] == "integer":
            continue
        total = sums.setdefault(fact["file"], dict.fromkeys(COUNTS, 0))
        for key in total:
            total[key] += one[key]
    if not sums:
        return True
    digits = {file: one["numbers"] + one["zeros"] == one["count"] for file, one in sums.items()}
    if len(set(digits.values())) > 1:
        of = {value: file for file, value in digits.items()}
        raise DataError(
            f"ids of {'targets' if side else 'sources'} are numbers in {files[of[True]]} and texts in "
            f"{files[of[False]]}; write them alike in all files"
        )
    total = {key: sum(one[key] for one in sums.values()) for key in COUNTS}
    rest, path = total["count"] - total["numbers"] - total["zeros"], files[next(iter(sums))]
    if rest and total["numbers"] and rest in (total["odd"], total["fractions"]):
        what = "words for nothing or remarks" if rest == total["odd"] else "fractions or exponents"
        raise DataError(f"{path}: {rest} ids are {what} among whole numbers; mend or remove those rows")
    return not rest and not total["zeros"]


def _check_negative(facts: Sequence[Fact], files: Sequence[Path], side: int) -> None:
    for fact in facts:
        if negative := fact["ids"][side]["negative"]:
            raise DataError(f"{files[fact['file']]}: negative id {negative}; ids are at least 0, or texts")


def _kind_of_times(facts: Sequence[Fact], files: Sequence[Path]) -> str:
    first = {fact["time"]: files[fact["file"]] for fact in reversed(facts)}
    if "date" in first and len(first) > 1:
        other = next(kind for kind in first if kind != "date")
        raise DataError(f"times are dates in {first['date']} and numbers in {first[other]}; write them alike")
    if "number" not in first:
        return next(iter(first))
    if "integer" in first and max(fact["largest"] for fact in facts) >= EXACT:
        raise DataError(
            f"times are fractions in {first['number']} and beyond 2^53 in others, where neighbours become one; "
            "write all as whole numbers, or from a nearer start"
        )
    return "number"


@dataclass(frozen=True)
class Labels:
    """Labels of all pieces.

    Args:
        dtype: as they are written.
        names: of classes, or None.
        places: for each piece, what its own codes of words become; None where labels are numbers.
        note: on classes.
    """

    dtype: np.dtype[Any]
    names: tuple[str, ...] | None = None
    places: tuple[np.ndarray, ...] | None = None
    note: str = ""


def settle_labels(facts: Sequence[Fact], column: str, where: Path) -> Labels | None:
    """Return labels as `hopstate.data.labels.labels_of_events` has them; None where they are no classes.

    Raises:
        DataError: -1, which may be "no label", amounts with gaps, or texts in one piece and numbers in another.
    """
    known = {fact["label"] for fact in facts if fact["count"] > fact["unlabelled"]}
    absent = sum(fact["unlabelled"] for fact in facts)
    if minus := sum(fact.get("minus", 0) for fact in facts):
        raise DataError(
            f"{where}: column {column!r} holds -1 in {minus:,} rows; leave those cells empty where that is 'no label', "
            "write classes from 0 on where it is one, or read the table in memory with --read.unlabelled"
        )
    if "text" not in known:
        if "number" in known and absent:
            raise DataError(
                f"{where}: column {column!r} holds amounts, and none in {absent:,} rows; fill it in, or remove the rows"
            )
        kind = facts[0].get("label_type", "")
        plain = np.dtype(kind) if kind.lower() == kind and kind not in ("", "bool", "object") else np.dtype(np.int64)
        return Labels(np.dtype(np.float64) if "number" in known and plain.kind != "f" else plain)
    if len(known) > 1:
        raise DataError(f"{where}: column {column!r} holds numbers in some rows and texts in others; write them alike")
    counts: dict[str, int] = {}
    for fact in facts:
        for word, count in zip(fact.get("words", ()), fact.get("word_counts", ())):
            counts[word] = counts.get(word, 0) + count
    lower = {word.lower() for word in counts}
    if lower <= {"true", "false"}:
        return Labels(np.dtype(np.int64), None, _places(facts, {word: word.lower() == "true" for word in counts}))
    if sum(counts.values()) >= 20 and len(counts) > 0.5 * sum(counts.values()):
        return None
    order = sorted(counts, key=lambda word: (-counts[word], word))
    return Labels(
        np.dtype(np.int64), tuple(order), _places(facts, {word: at for at, word in enumerate(order)}),
        f"labels: column {column!r}, {len(order)} classes, the most frequent {order[0]}",
    )  # fmt: skip


def _places(facts: Sequence[Fact], place: dict[str, Any]) -> tuple[np.ndarray, ...]:
    return tuple(np.array([*(int(place[word]) for word in fact.get("words", ())), -1], np.int64) for fact in facts)
