"""Columns of tables as a user may name them: what each holds, and how tables with texts meet those of a trained run.

A column of texts becomes one column for each text, "category venue=ICML", 1 where a row has it, and "other venue", 1
where a row has another one; a column of dates becomes "date when", seconds since 1970. So the names of the columns say
how each was read, and a run that keeps them reads later files alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from hopstate.data.texts import CATEGORY, LEAST, OTHER, TextColumn, decoded, text_of
from hopstate.errors import ConfigError, DataError, nearest, warn


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

    @property
    def texts(self) -> tuple[TextColumn, ...]:
        """Its columns of texts, none where columns of 0 and 1 are all that there is of them."""
        ...

    def __len__(self) -> int:
        """N."""
        ...


Kind = Literal["number", "category", "date", "drop"]
KINDS = ("number", "category", "date", "drop")
DATE = "date "
IF_THERE = "?"  # at the end of a kind: of a column that a table need not have


@dataclass(frozen=True)
class Declared:
    """What a user, or a trained run, says that a column holds.

    Args:
        kind: see `KINDS`.
        format: of dates, as strptime has it, "" for ISO dates; of numbers the decimal sign, "point" or "comma", "" for
            plain ones.
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
        if not sign or not name or kind not in KINDS or (form and not _has_form(kind, form)):
            raise ConfigError(
                f"read.columns says NAME=KIND of columns, KIND one of {', '.join(KINDS)}, date:FORMAT such as "
                f"date:%d/%m/%Y, number:point (1,234.5) or number:comma (1.234,5); "
                f"got {text!r}{nearest(kind, KINDS) if sign else ''}"
            )
        found[name] = Declared(kind, form, needed)  # type: ignore[arg-type]
    return found


def _has_form(kind: str, form: str) -> bool:
    return kind == "date" or (kind == "number" and form in ("point", "comma"))


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
        elif text_of(name, texts) is None:
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


def _parted(table: Table) -> tuple[tuple[TextColumn, ...], list[int]]:
    """Return the columns of texts of a table, and the places of its others."""
    texts = table.texts or decoded(table.columns, table.values)
    own = {text.name for text in texts}
    return texts, [at for at, name in enumerate(table.columns) if text_of(name, own) is None]


def of_training(table: Table, rows: np.ndarray) -> tuple[str, ...]:
    """Return a table's columns, of its columns of texts those that its training rows (n,) say and none beside."""
    texts, rest = _parted(table)
    found: list[str] = []
    for place in range(len(rest) + 1):
        for text in texts:
            words = text.categories(rows) if text.before == place else None
            found += () if words is None else text.names(words)
        found += [table.columns[at] for at in rest[place : place + 1]]
    return tuple(found)


def arranged(
    table: Table, columns: tuple[str, ...], what: str, tag: str, *, tell: bool = True, left: Sequence[str] = ()
) -> np.ndarray:
    """Return (N, F) values of a table with the columns of a run, by name; texts that the run does not know are others.

    Args:
        table: of N rows.
        columns: (F,) of the run.
        what: how messages call the table.
        tag: beginning of names that may be absent, and are 0 then.
        tell: warn of texts that the run does not know.
        left: columns of texts that the run left out when it was trained; nothing is said of those.

    Raises:
        DataError: columns that are absent, unknown, or of another kind; they are named.
    """
    texts, (mine, rest) = _texts(columns), _parted(table)
    own = {text.name for text in mine}
    mixed = [(table.columns[at], "numbers", "texts") for at in rest if table.columns[at] in texts]
    mixed += [(name, "texts", "numbers") for name in sorted(own) if name in columns]
    if mixed:
        name, there, trained = mixed[0]
        kind = "category" if trained == "texts" else "number"
        raise DataError(
            f"{what}: column {name!r} holds {there}, the model was trained with {trained} in it; mend the column, or "
            f"read it with columns ['{name}={kind}']"
        )
    plain = [table.columns[at] for at in rest]
    _check_names(plain, own, columns, what, texts, tag)
    if tell:
        _tell([text for text in mine if text.name not in left], columns, what, texts)
    place = {name: i for i, name in enumerate(columns)}
    found = np.zeros((len(table), len(columns)), table.values.dtype)
    for at, name in zip(rest, plain, strict=True):
        found[:, place[name]] = table.values[:, at]
    for text in mine:
        if text.name in texts:
            text.add_to(found, columns)
    return found


def _check_names(
    plain: list[str], own: set[str], columns: tuple[str, ...], what: str, texts: set[str], tag: str
) -> None:
    """Raise DataError where columns of a run are not there, or others are that it does not know.

    Args:
        plain: names of the table's columns of numbers and dates.
        own: of its columns of texts.
        columns: of the run.
        what, tag: see `arranged`.
        texts: the run's columns of texts.
    """
    absent = {text_of(name, texts) or name: 0 for name in columns}
    absent = {_plain(name): 0 for name in absent if name not in {*plain, *own} and not name.startswith(tag)}
    more = [_plain(name) for name in plain if name not in columns]
    if absent or more:
        first = next(iter(absent), "")
        parts = [f"no column {', '.join(map(repr, absent))}{nearest(first, more)}"] if absent else []
        parts += [f"{', '.join(map(repr, more))}, which it does not know"] if more else []
        drop = ", ".join(f"{name}=drop" for name in more)
        out = f", or leave the others out with --read.columns '[{drop}]' (columns in Python)" if more else ""
        raise DataError(
            f"{what} does not have the columns of features that the model was trained with: there is "
            f"{' and there is '.join(parts)}; give those columns{out}"
        )


def _plain(name: str) -> str:
    return name.removeprefix(DATE)


def _tell(mine: Sequence[TextColumn], columns: tuple[str, ...], what: str, texts: set[str]) -> None:
    """Warn of rows whose texts the run does not know, and of columns of texts that it does not know."""
    rows, shown, strange = np.zeros(len(mine[0].codes) if mine else 0, bool), [], []
    for text in mine:
        if text.name not in texts:
            continue
        new = np.array([name not in columns for name in text.names(text.words)[:-1]] + [True], bool)[text.codes]
        rows |= new
        first = np.unique(text.codes[new])
        shown += [repr(f"{text.name}={text.words[at]}") for at in first[first >= 0].tolist()]
        if new.all():
            strange.append(_all_new(text, columns))
    said = []
    if shown:
        more = ", ..." * (len(shown) > 5)
        told = (
            f"{int(rows.sum()):,} rows have texts that fewer than {LEAST} training rows had "
            f"({', '.join(shown[:5])}{more}); they count as other texts"
        )
        said.append("; ".join([told, *strange]))
    idle = sorted(text.name for text in mine if text.name not in texts)
    if idle:
        said.append(f"columns of texts that the run does not know are left out: {', '.join(idle)}")
    for one in said:
        warn(f"{what}: {one}", stacklevel=6)


def _all_new(text: TextColumn, columns: tuple[str, ...]) -> str:
    """Return what is said of a column of texts none of which the run knows."""
    start = f"{CATEGORY}{text.name}="
    known = [repr(name.removeprefix(start)) for name in columns if name.startswith(start)]
    return (
        f"no row has a text in column {text.name!r} that the run knows ({', '.join(known[:5])}"
        f"{', ...' * (len(known) > 5)}), so that the column tells it nothing; write them as the run's own file did"
    )


__all__ = ["DATE", "Declared", "arranged", "check_declared", "declared", "kinds_of", "of_training"]
