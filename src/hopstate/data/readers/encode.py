"""Feature columns of tables: numbers, dates or texts, declared by the user or inferred.

A text among numbers, or a date of another format among dates, raises an error that names the row. Text columns that
rarely recur are ignored. All rows define the texts of a column. Only training rows define its categories (see
`hopstate.data.preprocessing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from hopstate.data.dates import DATE_RANGE, UNITS
from hopstate.data.preprocessing import DATE, MAX_CATEGORIES, OTHER, FeatureTable, TextColumn, text_of
from hopstate.data.readers.local import check_dates, check_numbers, date_forms, parse_formatted_numbers
from hopstate.data.readers.tables import NO_LABEL, Table, is_numeric
from hopstate.data.readers.times import times_of
from hopstate.errors import ConfigError, DataError, listed, nearest

if TYPE_CHECKING:
    import pandas as pd

ISO = r"\s*\d{4}-\d\d-\d\d"
Block = tuple[tuple[str, ...], np.ndarray]  # names of columns (C,) and their values (N, C)
Kind = Literal["number", "category", "date", "drop"]
KINDS = ("number", "category", "date", "drop")
OPTIONAL_MARK = "?"  # at the end of a kind: of a column that a table need not have


@dataclass(frozen=True)
class ColumnSpec:
    """The declared content of a column."""

    kind: Kind
    format: str = ""  # of dates as strptime has it, of numbers the decimal sign, "point" or "comma"
    required: bool = True  # the table must have the column


def parse_column_specs(columns: Sequence[str] | None) -> dict[str, ColumnSpec]:
    """Parse specs such as "venue=category" or "when=date:%d/%m/%Y"."""
    specs: dict[str, ColumnSpec] = {}
    for text in columns or ():
        name, sign, spec = str(text).rpartition("=")
        kind, _, form = spec.partition(":")
        required, kind = not kind.endswith(OPTIONAL_MARK), kind.removesuffix(OPTIONAL_MARK)
        if not sign or not name or kind not in KINDS or (form and not _has_form(kind, form)):
            raise ConfigError(
                f"read.columns says NAME=KIND of columns, KIND one of {', '.join(KINDS)}, date:FORMAT such as "
                f"date:%d/%m/%Y, number:point (1,234.5) or number:comma (1.234,5); "
                f"got {text!r}{nearest(kind, KINDS) if sign else ''}"
            )
        specs[name] = ColumnSpec(kind, form, required)  # type: ignore[arg-type]
    return specs


def _has_form(kind: str, form: str) -> bool:
    return kind == "date" or (kind == "number" and form in ("point", "comma"))


def check_specs(specs: Mapping[str, ColumnSpec], names: Iterable[str], where: str) -> None:
    """Raise DataError if a required column is missing from the table."""
    known = list(dict.fromkeys(map(str, names)))
    for name, one in specs.items():
        if one.required and name not in known:
            raise DataError(f"{where} has no column {name!r} (read.columns){nearest(name, known)}")


def column_specs_of_run(columns: Sequence[str], specs: Sequence[str] | None = ()) -> tuple[str, ...]:
    """Return specs of the columns of a trained run; those of the user come first.

    >>> column_specs_of_run(("cites", "category venue=KDD", "other venue", "date when"))
    ('cites=number?', 'venue=category?', 'when=date?')
    """
    by_user = parse_column_specs(specs)
    texts = {name.removeprefix(OTHER) for name in columns if name.startswith(OTHER)}
    found = {}
    for name in columns:
        if name.startswith(OTHER):
            found[name.removeprefix(OTHER)] = "category"
        elif name.startswith(DATE):
            found[name.removeprefix(DATE)] = "date"
        elif text_of(name, texts) is None:
            found[name] = "number"
    inferred = [f"{name}={kind}{OPTIONAL_MARK}" for name, kind in found.items() if name not in by_user]
    return (*map(_as_optional, specs or ()), *inferred)


def _as_optional(text: str) -> str:
    name, _, spec = text.rpartition("=")
    kind, sign, form = spec.partition(":")
    return f"{name}={kind.removesuffix(OPTIONAL_MARK)}{OPTIONAL_MARK}{sign}{form}"


def encode_features(
    table: Table, columns: Sequence[str], what: str, missing: str, specs: Mapping[str, ColumnSpec]
) -> tuple[FeatureTable | None, tuple[str, ...]]:
    """Return features of columns, or None if no column is used, and notes on dates and texts."""
    import pandas as pd

    numbers: dict[str, pd.Series] = {}
    texts: list[TextColumn] = []
    blocks: dict[str, Block] = {}  # of each column that is used, numbers to follow
    notes: list[str] = []
    for name in columns:
        if name not in specs:
            check_plain_numbers(table, name, what)
        spec = specs.get(name) or _infer_spec(table, name)
        if spec.kind == "number":
            numbers[name] = _numbers(table, name, spec.format) if spec.format else table.frame[name]
        elif spec.kind == "date":
            numbers[f"{DATE}{name}"] = _dates(table, name, spec.format)
            notes.append(f"column {name!r} holds dates, read as seconds since 1970")
        elif spec.kind == "category":
            column = TextColumn.of(name, category_texts(table, name), declared=name in specs, before=len(numbers))
            words = column.categories(least=1)
            notes.append(_text_note(column, words))
            texts.append(column if words is not None else column.recurring())
            if words is not None:
                if name not in specs:
                    _check_missing_words(table, name, what)
                    check_dates(
                        category_texts(table, name), f"{table.path}: column {name!r} of {what}", table.place, name
                    )
                encoded_names = column.names(words)
                encoded = np.zeros((len(table.frame), len(encoded_names)), np.float32)
                column.encode(encoded, encoded_names)
                blocks[name] = encoded_names, encoded
    if numbers:
        numeric = Table(pd.DataFrame(numbers), table.path, table.first_line, table.rows)
        values = numeric.numbers(list(numbers), what, missing)
        if list(numbers) == list(columns):
            return FeatureTable.of(tuple(columns), values), tuple(notes)
        blocks |= {name: ((name,), values[:, [at]]) for at, name in enumerate(numbers)}
        notes += [f"column {name!r} holds nothing" for name, column in numbers.items() if column.isna().all()]
    used = [key for name in columns for key in (name, f"{DATE}{name}") if key in blocks]
    if not used:
        return None, tuple(notes)
    names = tuple(name for key in used for name in blocks[key][0])
    return FeatureTable.of(names, np.concatenate([blocks[key][1] for key in used], 1), tuple(texts)), tuple(notes)


def _infer_spec(table: Table, name: str) -> ColumnSpec:
    """Infer the kind of a column from the majority of its cells, so that a typo raises an error later."""
    import pandas as pd

    values = table.frame[name]
    if values.dtype.kind == "M":
        return ColumnSpec("date")
    if is_numeric(values):
        return ColumnSpec("number")
    known = values.dropna().astype(str)
    if known.str.match(ISO).mean() >= 0.5:
        return ColumnSpec("date")
    return ColumnSpec("number" if pd.to_numeric(known, errors="coerce").notna().mean() >= 0.5 else "category")


def _check_missing_words(table: Table, name: str, what: str) -> None:
    """Raise DataError if a text may be a marker of missing values."""
    worded = table.worded(name)
    words = worded.isin(NO_LABEL)
    if table.written and words.any():
        row = int(np.argmax(words))
        raise DataError(
            f"{table.path}: column {name!r} of {what} holds {worded.iloc[row]!r} in {int(words.sum()):,} rows, the "
            f"first {table.place(row)}; if it is a text, give --read.columns '[{name}=category]'; if it means a "
            "missing value, leave those cells empty"
        )


def _written(table: Table, name: str) -> pd.Series:
    """Return a column as written, "" for missing cells."""
    values = table.worded(name)
    written = table.text(name) if is_numeric(values) else None
    text = values.astype(object) if written is None else written
    return text.where(values.notna(), "").astype(str).str.strip()


def category_texts(table: Table, name: str) -> pd.Series:
    """Return a column of categories, "" for missing cells; 5.0 becomes 5."""
    return _written(table, name).str.replace(r"^([+-]?\d+)\.0*$", r"\1", regex=True)


def check_plain_numbers(table: Table, name: str, what: str) -> None:
    """Raise DataError if a text column holds numbers with separators or signs."""
    values = table.frame[name]
    if is_numeric(values) or values.dtype.kind in "Mb":
        return
    ways = f", or say what it is: --read.columns '[{name}=number:point]' (1,234.5), '[{name}=number:comma]' (1.234,5) "
    where = f"{table.path}: column {name!r} of {what}"
    check_numbers(_written(table, name), where, table.place, f"{ways}or '[{name}=category]'")


def _numbers(table: Table, name: str, form: str) -> pd.Series:
    text = _written(table, name)
    numbers = parse_formatted_numbers(text, form)
    table.check(numbers.isna() & (text != ""), name, f"not a number with a decimal {form}", "Correct it.")
    return numbers


def _dates(table: Table, name: str, form: str) -> pd.Series:
    """Return a column of dates as seconds since 1970, UTC, NaN if there is none."""
    import pandas as pd

    times = times_of(table, name, form, dated=True)
    table.check(times.unusable, name, f"a date beyond what 64 bits of nanoseconds hold ({DATE_RANGE})", "Correct it.")
    return pd.Series(np.where(times.absent, np.nan, times.t / UNITS["s"]))


def _text_note(column: TextColumn, words: tuple[str, ...] | None) -> str:
    """Return the note on a column of texts: which categories it has, or why it has none."""
    import pandas as pd

    rows = {one: int(n) for one, n in zip(column.words, column.counts()) if one}
    num_filled = sum(rows.values())
    if words is None:
        forms = date_forms(pd.Series(list(rows), dtype=str))
        hint = f"{column.name}=date:{forms[0]}" if forms else f"{column.name}=category"
        note = f"column {column.name!r} holds {len(rows):,} different texts in {num_filled:,} rows; it is not used"
        return f"{note} (--read.columns '[{hint}]' takes it)"
    order = sorted((one for one in words if one), key=lambda one: (-rows[one], one))
    shown = listed(map(repr, order), 3)
    note = f"column {column.name!r} holds texts, read as {len(order)} categories ({shown})"
    empty = len(column.codes) - num_filled
    note += f", {empty:,} rows without one" if empty else ""
    if len(rows) > MAX_CATEGORIES:
        rarer = num_filled - sum(rows[one] for one in order)
        note += f"; {len(rows) - MAX_CATEGORIES:,} rarer ones, {rarer:,} rows, are one more"
    return note
