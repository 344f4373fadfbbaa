"""Columns of features as a user's table holds them, and the scales and fillings that training rows fix for all.

N rows, F columns; n of the rows are for training. What is fitted reads these n rows alone; what is applied looks at one
entry at a time, so that a row comes out alike alone and among others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from hopstate.data.column_facts import BLOCK, row_blocks
from hopstate.data.columns import arranged
from hopstate.data.texts import OTHER, TextColumn, text_of
from hopstate.errors import ConfigError, DataError

Missing = Literal["auto", "error", "mean", "median", "zero"]
MISSING = ("auto", "error", "mean", "median", "zero")
TAG = "tag "  # columns so called are 1 where a row is of a category; one that a file does not have is 0 everywhere
FARTHEST = 1e6  # scales from the middle; what lies beyond, on rows never trained on, is held there
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Features before they are scaled.

    Args:
        columns: (F,) their names.
        values: (N, F) float32, or float64 where float32 would lose digits; NaN or infinite where a value is missing.
        texts: columns of texts as they stand in the file; columns of 0 and 1 of the most frequent ones are in values,
            for whoever looks at these alone.

    Raises:
        DataError: names and values that do not match.
    """

    columns: tuple[str, ...]
    values: np.ndarray
    texts: tuple[TextColumn, ...] = ()

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(self.columns):
            raise DataError(f"{len(self.columns)} names of columns for features of shape {self.values.shape}")
        if any(len(text.codes) != len(self.values) for text in self.texts):
            raise DataError(f"columns of texts of other rows than the {len(self.values)} of their table")
        view = self.values.view()
        view.flags.writeable = False
        object.__setattr__(self, "values", view)

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def of(cls, columns: tuple[str, ...], values: np.ndarray, texts: tuple[TextColumn, ...] = ()) -> FeatureTable:
        """Return a table of float64 values, kept as float32 where that loses nothing."""
        if values.dtype != np.float32:
            with np.errstate(over="ignore"):
                small = values.astype(np.float32)
            values = small if np.array_equal(small, values, equal_nan=True) else values
        return cls(columns, values, texts)

    @property
    def has_missing(self) -> bool:
        """Whether any entry is no finite number."""
        return not all(np.isfinite(block).all() for _, block in row_blocks(self.values))

    def plain(self) -> np.ndarray:
        """Return (N, F) float32: the values as they are, 0 where one is missing."""
        if self.values.dtype == np.float32 and not self.has_missing:
            return self.values
        found = np.empty(self.values.shape, np.float32)
        for start, block in row_blocks(self.values):
            found[start : start + len(block)] = np.clip(np.where(np.isfinite(block), block, 0), -_LARGEST, _LARGEST)
        return found

    def take(self, rows: np.ndarray | slice) -> FeatureTable:
        """Return some rows."""
        return FeatureTable(self.columns, self.values[rows], tuple(text.take(rows) for text in self.texts))

    def text_arrays(self) -> list[np.ndarray]:
        """Return what columns of texts hold, as arrays of numbers."""
        lines = [np.frombuffer(text.as_text().encode("utf-8", "surrogatepass"), np.uint8) for text in self.texts]
        return lines + [text.codes for text in self.texts]

    def without(self, place: int) -> FeatureTable:
        """Return the table without its column of numbers at a place."""
        texts, kept = tuple(self.texts), [at for at in range(len(self.columns)) if at != place]
        own = {text.name for text in texts}
        ahead = sum(text_of(name, own) is None for name in self.columns[:place])
        texts = tuple(replace(text, before=text.before - (text.before > ahead)) for text in texts)
        return FeatureTable(tuple(self.columns[at] for at in kept), self.values[:, kept], texts)

    def in_order_of(
        self, columns: tuple[str, ...], what: str, *, tell: bool = True, left: tuple[str, ...] = ()
    ) -> np.ndarray:
        """Return the values with columns in the order that a model was trained with; see `hopstate.data.columns`.

        Raises:
            DataError: a column of that name is not there, or there are others; they are named.
        """
        return self.values if self.columns == columns else arranged(self, columns, what, TAG, tell=tell, left=left)


@dataclass(frozen=True, eq=False, kw_only=True)
class FeatureScaler:
    """What training rows say of each column: how it is filled where empty, moved and divided.

    Args:
        kind: "standard" (mean, standard deviation), "robust" (median, distance of the quartiles), or "none".
        columns: names, or None where they have none.
        fill: (F,) what stands in for a missing value.
        shift, scale: (F,) a value v becomes (v - shift) / scale; 0 everywhere where scale is 0.
        marked: columns that are missing in some training rows: each gets a further column, 1 where it is missing.
        rows: how many training rows were looked at.
    """

    kind: str
    columns: tuple[str, ...] | None
    fill: np.ndarray
    shift: np.ndarray
    scale: np.ndarray
    marked: np.ndarray
    rows: int

    @classmethod
    def fit(
        cls, values: np.ndarray, rows: np.ndarray, *, kind: str, missing: str, columns: tuple[str, ...] | None
    ) -> FeatureScaler:
        """Return what the given rows (n,) of values (N, F) say.

        A column with one value among them becomes 0, one with two values 0 and 1.

        Raises:
            ConfigError: another kind or another way to fill.
        """
        if kind not in ("standard", "robust", "none"):
            raise ConfigError(f"read.scale is 'standard', 'robust' or 'none'; got {kind!r}")
        if missing not in MISSING:
            raise ConfigError(f"read.missing is one of {', '.join(MISSING)}; got {missing!r}")
        width = values.shape[1]
        fill, shift, scale = np.zeros(width), np.zeros(width), np.ones(width)
        marked = np.zeros(width, bool)
        step = max(1, BLOCK // max(1, len(rows)))
        for start in range(0, width, step):
            chunk = slice(start, start + step)
            block = np.asarray(values[rows, chunk], np.float64)
            facts = _facts(block, np.finfo(values.dtype).eps, median=missing == "median" or kind == "robust")
            fill[chunk] = 0 if missing == "zero" else facts["median" if missing == "median" else "mean"]
            marked[chunk] = facts["some missing"]
            if kind != "none":
                shift[chunk], scale[chunk] = _middle(facts, kind)
        return cls(
            kind=kind, columns=columns, fill=fill, shift=shift, scale=scale, marked=np.flatnonzero(marked),
            rows=len(rows),
        )  # fmt: skip

    def sums(self) -> FeatureScaler:
        """Return a scaler that leaves a column that never changes 1, not 0: sums over nodes count by it."""
        constant = (self.scale == 0) & (self.fill != 0)
        shift = np.where(constant, self.fill - 1, self.shift)
        return replace(self, shift=shift, scale=np.where(self.scale == 0, 1, self.scale))

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Return (N, F + marked) float32 of values (N, F), every entry for itself.

        Raises:
            DataError: another number of columns.
        """
        width = len(self.fill)
        if values.shape[1] != width:
            raise DataError(f"there are {values.shape[1]} features, the model was trained with {width}")
        found = np.empty((len(values), width + len(self.marked)), np.float32)
        limit = _LARGEST if self.kind == "none" else FARTHEST
        divisor = np.where(self.scale == 0, 1, self.scale)
        for start, block in row_blocks(values):
            missing = ~np.isfinite(block)
            block = np.where(missing, self.fill, block.astype(np.float64))
            if self.kind != "none":
                with np.errstate(over="ignore"):
                    block = np.where(self.scale == 0, 0, (block - self.shift) / divisor)
            stop = start + len(block)
            found[start:stop, :width] = np.clip(block, -limit, limit)
            found[start:stop, width:] = missing[:, self.marked]
        return found

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain numbers and lists; `from_json` gives the same bits back."""
        arrays = {name: getattr(self, name).tolist() for name in ("fill", "shift", "scale", "marked")}
        names = None if self.columns is None else list(self.columns)
        return {"kind": self.kind, "columns": names, **arrays, "rows": self.rows}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> FeatureScaler:
        """Return what `as_json` gave.

        Raises:
            DataError: something is missing or of another shape.
        """
        try:
            fill, shift, scale = (np.array(record[name], np.float64) for name in ("fill", "shift", "scale"))
            marked, columns = np.array(record["marked"], np.int64), record["columns"]
            names = None if columns is None else tuple(str(name) for name in columns)
            rows, kind = int(record["rows"]), str(record["kind"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"the scales kept with the run are damaged ({error!r})") from None
        known = fill.ndim == 1 and fill.shape == shift.shape == scale.shape and marked.ndim == 1
        fitting = known and (names is None or len(names) == len(fill))
        if (
            not fitting
            or ((marked < 0) | (marked >= len(fill))).any()
            or not np.isfinite([*fill, *shift, *scale]).all()
        ):
            raise DataError("the scales kept with the run are damaged: they do not match each other")
        return cls(kind=kind, columns=names, fill=fill, shift=shift, scale=scale, marked=marked, rows=rows)

    def told(self, what: str, rows: str) -> str:
        """Return one line on what was done, for a run's own notes; words for the features and for the rows."""
        how = {
            "standard": "standardised by the mean and deviation",
            "robust": "scaled by the median and the distance of the quartiles",
        }.get(self.kind, "left in their own scales; empty entries by the middle")
        names = self.columns or ()
        own = [at for at in np.flatnonzero(self.scale == 0).tolist() if not names or not names[at].startswith(OTHER)]
        constant = self._named(np.array(own, np.int64))
        marked = self._named(self.marked)
        parts = [f"{what}: {how} of {self.rows:,} {rows} (--read.scale)"]
        parts += [f"never changing there, hence 0: {constant}"] if constant else []
        parts += [f"missing values filled (--read.missing), with a column that marks them: {marked}"] if marked else []
        return "; ".join(parts)

    def _named(self, places: np.ndarray) -> str:
        names = [str(i) if self.columns is None else self.columns[i] for i in places[:5].tolist()]
        return ", ".join(names) + (f" and {len(places) - 5} more" if len(places) > 5 else "")


def _facts(block: np.ndarray, eps: float, *, median: bool = False) -> dict[str, np.ndarray]:
    """Return mean, median, deviation, quartiles' distance, lowest, highest and kind of each column of (n, b) values.

    Each column is first divided by a power of two of about its largest value, so that no square is infinite or 0.
    """
    known = np.isfinite(block)
    some = known.any(0) if len(block) else np.zeros(block.shape[1], bool)
    largest = np.max(np.where(known, np.abs(block), 0), axis=0, initial=0)
    power = np.frexp(largest)[1]
    u = np.where(known, np.ldexp(np.where(known, block, 0), -power), np.nan)
    u[:, ~some] = 0
    if not len(u):
        u = np.zeros((1, block.shape[1]))
    mean = np.nanmean(u, 0)
    low, high = np.nanmin(u, 0), np.nanmax(u, 0)
    constant = high - low <= 8 * eps
    two = ~constant & (np.isnan(u) | (u == low) | (u == high)).all(0)
    facts = {"mean": mean, "deviation": np.sqrt(np.nanmean((u - mean) ** 2, 0)), "low": low, "width": high - low}
    if median:
        first, facts["median"], third = np.nanpercentile(u, [25, 50, 75], axis=0)
        facts["quartiles"] = third - first
    with np.errstate(over="ignore"):
        facts = {
            name: np.clip(np.ldexp(value, power), -np.finfo(float).max, np.finfo(float).max)
            for name, value in facts.items()
        }
    return facts | {"constant": constant, "two": two, "some missing": some & ~known.all(0)}


def _middle(facts: dict[str, np.ndarray], kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (shift, scale) of columns."""
    shift, scale = facts["mean"], facts["deviation"]
    if kind == "robust":  # where more than half the values are one, the quartiles say nothing
        shift, scale = facts["median"], np.where(facts["quartiles"] > 0, facts["quartiles"], scale)
    shift, scale = np.where(facts["two"], facts["low"], shift), np.where(facts["two"], facts["width"], scale)
    return np.where(facts["constant"], facts["mean"], shift), np.where(facts["constant"], 0, scale)
