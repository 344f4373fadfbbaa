"""Columns of tables as a user may name them: what each holds, and how tables with texts meet those of a trained run.

A column of texts becomes one column for each text, "category venue=ICML", 1 where a row has it, and "other venue", 1
where a row has another one; a column of dates becomes "date when", seconds since 1970. So the names of the columns say
how each was read, and a run that keeps them reads later files alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from hopstate.errors import ConfigError, DataError, HopstateWarning, nearest


class Table(Protocol):
    """Rows by columns that have names."""

    @property
    def columns(self) -> tuple[str, ...]:
        """(F,) names."""
        ...

    @property
    def values(self) -> np.ndarray:
        """(N, F)."""
        ...

    def __len__(self) -> int:
        """N."""
        ...


Kind = Literal["number", "category", "date", "drop"]
KINDS = ("number", "category", "date", "drop")
CATEGORY, OTHER, DATE = "category ", "other ", "date "
IF_THERE = "?"  # at the end of a kind: of a column that a table need not have
LEAST = 2  # training rows of a category of its own; rarer ones are "other"


@dataclass(frozen=True)
class Declared:
    """What a user, or a trained run, says that a column holds.

    Args:
        kind: see `KINDS`.
        format: of dates, as strptime has it; "" for ISO dates.
        needed: the table must have the column.
    """

    kind: Kind
    format: str = ""
    needed: bool = True


def declared(columns: Sequence[str] | None) -> dict[str, Declared]:
    """Return what is said of columns, from "venue=category", "when=date:%d/%m/%Y", ...

    Raises:
        ConfigError: no such kind, or no name.
    """
    found: dict[str, Declared] = {}
    for text in columns or ():
        name, sign, said = str(text).rpartition("=")
        kind, _, form = said.partition(":")
        needed, kind = not kind.endswith(IF_THERE), kind.removesuffix(IF_THERE)
        if not sign or not name or kind not in KINDS or (form and kind != "date"):
            raise ConfigError(
                f"read.columns says NAME=KIND of columns, KIND one of {', '.join(KINDS)} or date:FORMAT such as "
                f"date:%d/%m/%Y; got {text!r}{nearest(kind, KINDS) if sign else ''}"
            )
        found[name] = Declared(kind, form, needed)  # type: ignore[arg-type]
    return found


def check_declared(said: Mapping[str, Declared], names: Iterable[str], where: str) -> None:
    """Raise DataError where a column that something is said of stands in no table."""
    known = list(dict.fromkeys(map(str, names)))
    for name, one in said.items():
        if one.needed and name not in known:
            raise DataError(f"{where} has no column {name!r} (read.columns){nearest(name, known)}")


def kinds_of(columns: Sequence[str], said: Sequence[str] | None = ()) -> tuple[str, ...]:
    """Return what the columns of a trained run hold, as `declared` takes it, beside what the user said of them.

    >>> kinds_of(("cites", "category venue=KDD", "other venue", "date when"))
    ('cites=number?', 'venue=category?', 'when=date?')
    """
    own, texts = declared(said), _texts(columns)
    found = {}
    for name in columns:
        if name.startswith(OTHER):
            found[name.removeprefix(OTHER)] = "category"
        elif name.startswith(DATE):
            found[name.removeprefix(DATE)] = "date"
        elif _text_of(name, texts) is None:
            found[name] = "number"
    kept = [f"{name}={kind}{IF_THERE}" for name, kind in found.items() if name not in own]
    return (*map(_if_there, said or ()), *kept)


def _if_there(text: str) -> str:
    name, _, said = text.rpartition("=")
    kind, sign, form = said.partition(":")
    return f"{name}={kind.removesuffix(IF_THERE)}{IF_THERE}{sign}{form}"


def _texts(columns: Sequence[str]) -> set[str]:
    """Return the columns of texts among those of a table."""
    return {name.removeprefix(OTHER) for name in columns if name.startswith(OTHER)}


def _text_of(name: str, texts: set[str]) -> str | None:
    """Return the column of texts that one of a table's columns is of, None for numbers and dates."""
    if name.startswith(OTHER):
        return name.removeprefix(OTHER)
    if not name.startswith(CATEGORY):
        return None
    ends = [at for at, sign in enumerate(name) if sign == "="]
    return next((name[len(CATEGORY) : at] for at in ends if name[len(CATEGORY) : at] in texts), None)


def of_training(table: Table, rows: np.ndarray) -> tuple[str, ...]:
    """Return a table's columns without categories that fewer than `LEAST` of its training rows (n,) have."""
    texts = _texts(table.columns)
    at = [i for i, name in enumerate(table.columns) if name.startswith(CATEGORY) and _text_of(name, texts) is not None]
    counts = table.values[rows][:, at].sum(0)
    rare = {i for i, count in zip(at, counts.tolist(), strict=True) if count < LEAST}
    return tuple(name for i, name in enumerate(table.columns) if i not in rare)


def arranged(table: Table, columns: tuple[str, ...], what: str, tag: str, *, tell: bool = True) -> np.ndarray:
    """Return (N, F) values of a table with the columns of a run, by name; texts that the run does not know are others.

    Args:
        table: of N rows.
        columns: (F,) of the run.
        what: how messages call the table.
        tag: beginning of names that may be absent, and are 0 then.
        tell: warn of texts that the run does not know.

    Raises:
        DataError: columns that are absent, unknown, or of another kind; they are named.
    """
    texts, own = _texts(columns), _texts(table.columns)
    mixed = [(name, "numbers", "texts") for name in table.columns if name in texts]
    mixed += [(name, "texts", "numbers") for name in sorted(own) if name in columns]
    if mixed:
        name, there, trained = mixed[0]
        kind = "category" if trained == "texts" else "number"
        raise DataError(
            f"{what}: column {name!r} holds {there}, the model was trained with {trained} in it; mend the column, or "
            f"read it with columns ['{name}={kind}']"
        )
    mine = [_text_of(name, own) for name in table.columns]
    _check_names(table, mine, columns, what, texts, tag)
    if tell:
        _tell(table, mine, columns, what, texts)
    place = {name: i for i, name in enumerate(columns)}
    found = np.zeros((len(table), len(columns)), table.values.dtype)
    for i, (name, text) in enumerate(zip(table.columns, mine, strict=True)):
        if name in place:
            found[:, place[name]] += table.values[:, i]
        elif text in texts:
            found[:, place[f"{OTHER}{text}"]] += table.values[:, i]
    return found


def _check_names(
    table: Table, mine: list[str | None], columns: tuple[str, ...], what: str, texts: set[str], tag: str
) -> None:
    """Raise DataError where columns of a run are not there, or others are that it does not know."""
    there = {*table.columns, *(name for name in columns if _text_of(name, texts) in set(mine) - {None})}
    absent = {_text_of(name, texts) or _plain(name): 0 for name in columns if name not in there}
    absent = {name: 0 for name in absent if not name.startswith(tag)}
    more = [_plain(name) for name, text in zip(table.columns, mine) if text is None and name not in columns]
    if absent or more:
        first = next(iter(absent), "")
        parts = [f"no column {', '.join(map(repr, absent))}{nearest(first, more)}"] if absent else []
        parts += [f"{', '.join(map(repr, more))}, which it does not know"] if more else []
        raise DataError(
            f"{what} has {len({*mine} - {None}) + mine.count(None)} features, the model was trained with "
            f"{len({_text_of(name, texts) or name for name in columns})}: there is {' and there is '.join(parts)}; "
            "give the columns that it was trained with"
        )


def _plain(name: str) -> str:
    return name.removeprefix(DATE)


def _tell(table: Table, mine: list[str | None], columns: tuple[str, ...], what: str, texts: set[str]) -> None:
    """Warn of rows whose texts the run does not know, and of columns of texts that it does not know."""
    new = [i for i, (name, text) in enumerate(zip(table.columns, mine)) if text in texts and name not in columns]
    new = [i for i in new if table.columns[i].startswith(CATEGORY) and table.values[:, i].any()]
    said = []
    if new:
        rows = int((table.values[:, new] != 0).any(1).sum())
        shown = ", ".join(repr(table.columns[i].removeprefix(CATEGORY)) for i in new[:5])
        said.append(
            f"{rows:,} rows have texts that fewer than {LEAST} training rows had ({shown}{', ...' * (len(new) > 5)}); "
            "they count as other texts"
        )
    idle = sorted({text for text in mine if text is not None and text not in texts})
    if idle:
        said.append(f"columns of texts that the run does not know are left out: {', '.join(idle)}")
    for text in said:
        warnings.warn(f"{what}: {text}", HopstateWarning, stacklevel=6)


__all__ = [
    "CATEGORY", "DATE", "LEAST", "OTHER", "Declared", "arranged", "check_declared", "declared", "kinds_of",
    "of_training",
]  # fmt: skip
