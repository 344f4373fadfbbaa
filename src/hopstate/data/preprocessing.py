"""Feature preprocessing fitted to training rows: scaling, imputation and one-hot encoding.

Shapes: N rows, F columns, n training rows. Fitting reads only the training rows. Applying works row by row, so results
do not depend on other rows. A text column becomes one 0/1 column per frequent text, such as "category venue=ICML", and
one for all others, "other venue". A date column becomes "date when".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.errors import ConfigError, DataError, listed, nearest, warn
from hopstate.io.scratch import BLOCK, row_blocks

if TYPE_CHECKING:
    import pandas as pd

MISSING = ("auto", "error", "mean", "median", "zero")
SCALES = ("standard", "robust", "none")
TAG = "tag "  # columns so called are 1 if a row is of a category; one that a file lacks is 0 everywhere
CATEGORY, OTHER, DATE = "category ", "other ", "date "
MIN_CATEGORY_ROWS = 2  # training rows of a category of its own; rarer ones are "other"
MAX_CATEGORIES = 256  # categories of a column; other texts are "other"
MIN_ROWS_TO_RECUR = 20  # columns of fewer rows are categories even if no text recurs
CLIP_LIMIT = 1e6  # scales from the middle; values further away are clipped to it
WARN_SCALE_RATIO = 1000.0  # ratio of two columns' scales that is worth a warning
_LARGEST = float(np.finfo(np.float32).max)


# ---- columns of texts ---------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False, kw_only=True)
class TextColumn:
    """One column of texts, before training rows decide which of them are categories."""

    name: str
    words: tuple[str, ...]  # (W,) its texts in order, "" for rows without one
    codes: np.ndarray  # (N,) int32 places in words; -1 of a text that is in one row alone, and was not kept
    before: int = 0  # how many columns of numbers and dates precede it
    declared: bool = False  # the user said that it holds categories; else they must recur

    @classmethod
    def of(cls, name: str, text: pd.Series, *, declared: bool, before: int) -> TextColumn:
        """Return a column of texts (N,), "" where there is none."""
        codes, words = text.factorize(sort=True)
        return cls(
            name=name, words=tuple(map(str, words)), codes=codes.astype(np.int32), before=before, declared=declared
        )

    def take(self, rows: np.ndarray | slice) -> TextColumn:
        return replace(self, codes=self.codes[rows])

    def recurring(self) -> TextColumn:
        kept = (self.counts() >= MIN_CATEGORY_ROWS) | np.array([one == "" for one in self.words], bool)
        place = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1).astype(np.int32)
        return replace(self, words=tuple(compress(self.words, kept)), codes=place[self.codes])

    def counts(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the number of rows of each text (W,)."""
        codes = self.codes[rows]
        return np.bincount(codes[codes >= 0], minlength=len(self.words))

    def names(self, words: Sequence[str]) -> tuple[str, ...]:
        return (*(f"{CATEGORY}{self.name}={one}" for one in words), f"{OTHER}{self.name}")

    def categories(
        self, rows: np.ndarray | slice = slice(None), least: int = MIN_CATEGORY_ROWS
    ) -> tuple[str, ...] | None:
        """Return the most frequent texts, each in at least this many rows; None if few texts recur."""
        counts, num_unique = self.counts(rows), int((self.codes[rows] < 0).sum())
        empty = np.array([text == "" for text in self.words], bool)
        num_filled, num_distinct = int(counts[~empty].sum()) + num_unique, int((counts[~empty] > 0).sum()) + num_unique
        if not self.declared and counts.sum() + num_unique >= MIN_ROWS_TO_RECUR and 2 * num_distinct > num_filled:
            return None
        frequent = np.flatnonzero(~empty & (counts >= least)).tolist()
        order = sorted(frequent, key=lambda at: (-counts[at], self.words[at]))[:MAX_CATEGORIES]
        categories = sorted(self.words[at] for at in order)
        return (*categories, *([""] if (counts[empty] >= least).any() else []))

    def encode(self, found: np.ndarray, columns: Sequence[str]) -> None:
        """Write a one into each row of zeros (N, F), in the column of its text, or in that of all others."""
        place = {name: at for at, name in enumerate(columns)}
        other = place[f"{OTHER}{self.name}"]
        at = np.array([place.get(name, other) for name in self.names(self.words)[:-1]] + [other], np.int64)
        found[np.arange(len(found)), at[self.codes]] = 1  # the last is for codes -1

    def as_json(self) -> dict[str, Any]:
        """Return all but the codes."""
        return {"name": self.name, "words": list(self.words), "before": self.before, "declared": self.declared}

    @classmethod
    def from_json(cls, record: Mapping[str, Any], codes: np.ndarray) -> TextColumn:
        """Return the column of what `as_json` gave and its codes (N,)."""
        try:
            words, before, declared = tuple(map(str, record["words"])), int(record["before"]), bool(record["declared"])
            column = cls(name=str(record["name"]), words=words, codes=codes, before=before, declared=declared)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"a column of texts is damaged ({error!r})") from None
        if codes.dtype != np.int32 or (len(codes) and not -1 <= codes.min() <= codes.max() < len(words)):
            raise DataError(f"the codes of the column of texts {column.name!r} are none of its {len(words)} texts")
        return column


def text_of(name: str, texts: set[str]) -> str | None:
    """Return the column of texts that one of a table's columns encodes, None for numbers and dates."""
    if name.startswith(OTHER) and name.removeprefix(OTHER) in texts:
        return name.removeprefix(OTHER)
    if not name.startswith(CATEGORY):
        return None
    ends = [at for at, sign in enumerate(name) if sign == "="]
    return next((name[len(CATEGORY) : at] for at in ends if name[len(CATEGORY) : at] in texts), None)


# ---- tables -------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Features before they are scaled: NaN or infinite where a value is missing."""

    columns: tuple[str, ...]  # (F,)
    values: np.ndarray  # (N, F) float32, or float64 where float32 would lose digits
    texts: tuple[TextColumn, ...] = ()  # as in the file; values holds columns of 0 and 1 of the most frequent ones

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
        """Return a table of float64 values, kept as float32 if that loses nothing."""
        if values.dtype != np.float32:
            with np.errstate(over="ignore"):
                small = values.astype(np.float32)
            values = small if np.array_equal(small, values, equal_nan=True) else values
        return cls(columns, values, texts)

    @classmethod
    def stacked(cls, parts: Sequence[FeatureTable]) -> FeatureTable:
        """Return the rows of tables below each other; each has columns of its own, which are missing in other rows."""
        starts = np.cumsum([0, *map(len, parts)])
        columns, texts, blocks, before = list[str](), list[TextColumn](), [], 0
        for part, start in zip(parts, starts):
            rows = slice(start, start + len(part))
            block = np.zeros((starts[-1], len(part.columns)))
            block[:, part.numbers()] = np.nan
            block[rows] = part.values
            for text in part.texts:
                words = text.words if "" in text.words else ("", *text.words)
                codes = np.full(starts[-1], words.index(""), np.int32)
                codes[rows] = np.where(text.codes < 0, -1, text.codes + len(words) - len(text.words))
                texts.append(replace(text, words=words, codes=codes, before=before + text.before))
            columns += part.columns
            blocks.append(block)
            before += len(part.numbers())
        return cls.of(tuple(columns), np.concatenate(blocks, 1), tuple(texts))

    @property
    def has_missing(self) -> bool:
        """Whether any entry is NaN or infinite."""
        return not all(np.isfinite(block).all() for _, block in row_blocks(self.values))

    def plain(self) -> np.ndarray:
        """Return (N, F) float32: the values as they are, 0 where one is missing."""
        if self.values.dtype == np.float32 and not self.has_missing:
            return self.values
        values = np.empty(self.values.shape, np.float32)
        for start, block in row_blocks(self.values):
            values[start : start + len(block)] = np.clip(np.where(np.isfinite(block), block, 0), -_LARGEST, _LARGEST)
        return values

    def take(self, rows: np.ndarray | slice) -> FeatureTable:
        return FeatureTable(self.columns, self.values[rows], tuple(text.take(rows) for text in self.texts))

    def text_arrays(self) -> list[np.ndarray]:
        facts = [np.frombuffer(json.dumps(text.as_json()).encode(), np.uint8) for text in self.texts]
        return facts + [text.codes for text in self.texts]

    def numbers(self) -> list[int]:
        own = {text.name for text in self.texts}
        return [at for at, name in enumerate(self.columns) if text_of(name, own) is None]

    def without(self, place: int) -> FeatureTable:
        kept = [at for at in range(len(self.columns)) if at != place]
        ahead = sum(at < place for at in self.numbers())
        texts = tuple(replace(text, before=text.before - (text.before > ahead)) for text in self.texts)
        return FeatureTable(tuple(self.columns[at] for at in kept), self.values[:, kept], texts)

    def columns_of(self, rows: np.ndarray) -> tuple[str, ...]:
        """Return the feature columns of a model; categories are fitted to training rows (n,)."""
        numbers_left, names = self.numbers(), list[str]()
        for place in range(len(numbers_left) + 1):
            for text in self.texts:
                categories = text.categories(rows) if text.before == place else None
                names += () if categories is None else text.names(categories)
            names += [self.columns[at] for at in numbers_left[place : place + 1]]
        return tuple(names)

    def align_to(
        self, columns: tuple[str, ...], what: str, *, warn_new: bool = True, skipped: Sequence[str] = ()
    ) -> np.ndarray:
        """Return (N, F) values in the order of the columns (F,) of a run; unseen texts count as "other".

        There is no warning about columns of texts that the run left out when it was trained (skipped).
        """
        if self.columns == columns:
            return self.values
        known = {name.removeprefix(OTHER) for name in columns if name.startswith(OTHER)}
        plain = {self.columns[at]: at for at in self.numbers()}
        self._check_kinds(columns, known, plain, what)
        _check_names(plain, {text.name for text in self.texts}, columns, what, known)
        if warn_new:
            self._warn_new_texts([text for text in self.texts if text.name not in skipped], columns, what, known)
        aligned = np.zeros((len(self), len(columns)), self.values.dtype)
        for place, name in enumerate(columns):
            if name in plain:
                aligned[:, place] = self.values[:, plain[name]]
        for text in self.texts:
            if text.name in known:
                text.encode(aligned, columns)
        return aligned

    def _check_kinds(self, columns: Sequence[str], text_columns: set[str], plain: Mapping[str, int], what: str) -> None:
        mixed = [(name, "numbers", "texts") for name in plain if name in text_columns]
        mixed += [(text.name, "texts", "numbers") for text in self.texts if text.name in columns]
        for name, own, trained in mixed:
            kind = "category" if trained == "texts" else "number"
            raise DataError(
                f"{what}: column {name!r} holds {own}, the model was trained with {trained} in it; change the column, "
                f"or read it with columns ['{name}={kind}']"
            )

    def _warn_new_texts(
        self, texts: Sequence[TextColumn], columns: Sequence[str], what: str, text_columns: set[str]
    ) -> None:
        for text in texts:
            if text.name not in text_columns:
                warn(f"{what}: column {text.name!r} of texts is left out, as the run does not know it")
                continue
            new = np.array([name not in columns for name in text.names(text.words)[:-1]] + [True], bool)[text.codes]
            if not new.any():
                continue
            first = np.unique(text.codes[new])
            examples = ", ".join(repr(f"{text.name}={text.words[at]}") for at in first[first >= 0].tolist()[:5])
            message = f"{int(new.sum()):,} rows have texts that fewer than {MIN_CATEGORY_ROWS} training rows had"
            message += f" ({examples}{', ...' * (len(first) > 5)}); they count as other texts"
            if new.all():
                start = f"{CATEGORY}{text.name}="
                categories = [repr(name.removeprefix(start)) for name in columns if name.startswith(start)]
                message += f"; no row has a text that the run knows ({listed(categories)})"
            warn(f"{what}: {message}")


def _check_names(
    plain: Mapping[str, int], texts: set[str], columns: tuple[str, ...], what: str, text_columns: set[str]
) -> None:
    source_columns = dict.fromkeys(text_of(name, text_columns) or name for name in columns)
    absent = [
        n.removeprefix(DATE) for n in source_columns if n not in plain and n not in texts and not n.startswith(TAG)
    ]
    more = [name.removeprefix(DATE) for name in plain if name not in columns]
    if not absent and not more:
        return
    parts = [f"no column {', '.join(map(repr, absent))}{nearest(absent[0], more)}"] if absent else []
    parts += [f"{', '.join(map(repr, more))}, which it does not know"] if more else []
    drop = ", ".join(f"{name}=drop" for name in more)
    out = f", or leave the others out with --read.columns '[{drop}]' (columns in Python)" if more else ""
    raise DataError(
        f"{what} does not have the columns of features that the model was trained with: there is "
        f"{' and there is '.join(parts)}; give those columns{out}"
    )


# ---- scales and fillings ------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False, kw_only=True)
class FeatureScaler:
    """Imputation and scaling of each column, fitted to training rows by scikit-learn.

    A value v becomes (v - shift) / scale, 0 if scale is 0.
    """

    kind: str  # "standard" (mean, standard deviation), "robust" (median, distance of the quartiles), or "none"
    columns: tuple[str, ...] | None
    fill: np.ndarray  # (F,) what replaces a missing value
    shift: np.ndarray  # (F,)
    scale: np.ndarray  # (F,)
    marked: np.ndarray  # columns that training rows lack: each gets a further column, 1 where it is missing
    rows: int  # how many training rows were used

    @classmethod
    def fit(
        cls, values: np.ndarray, rows: np.ndarray, *, kind: str, missing: str, columns: tuple[str, ...] | None
    ) -> FeatureScaler:
        """Return what the given rows (n,) of values (N, F) say.

        A column with one value among them becomes 0, one with two values 0 and 1.
        """
        if kind not in SCALES:
            raise ConfigError(f"read.scale is 'standard', 'robust' or 'none'; got {kind!r}")
        if missing not in MISSING:
            raise ConfigError(f"read.missing is one of {', '.join(MISSING)}; got {missing!r}")
        width, step = values.shape[1], max(1, BLOCK // max(1, len(rows)))
        fill, shift, scale, marked = np.zeros(width), np.zeros(width), np.ones(width), np.zeros(width, bool)
        for start in range(0, width, step):
            part = slice(start, start + step)
            block = np.asarray(values[rows, part], np.float64)
            fill[part], shift[part], scale[part], marked[part] = _statistics(
                block, float(np.finfo(values.dtype).eps), kind, missing
            )
        return cls(
            kind=kind, columns=columns, fill=fill, shift=shift, scale=scale, marked=np.flatnonzero(marked),
            rows=len(rows),
        )  # fmt: skip

    def sums(self) -> FeatureScaler:
        """Return a scaler that makes a column that never changes 1, not 0: sums over nodes count by it."""
        constant = (self.scale == 0) & (self.fill != 0)
        shift = np.where(constant, self.fill - 1, self.shift)
        return replace(self, shift=shift, scale=np.where(self.scale == 0, 1, self.scale))

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Return (N, F + marked) float32 of values (N, F)."""
        width = len(self.fill)
        if values.shape[1] != width:
            raise DataError(f"there are {values.shape[1]} features, the model was trained with {width}")
        scaled = np.empty((len(values), width + len(self.marked)), np.float32)
        limit = _LARGEST if self.kind == "none" else CLIP_LIMIT
        divisor = np.where(self.scale == 0, 1, self.scale)
        for start, block in row_blocks(values):
            missing = ~np.isfinite(block)
            block = np.where(missing, self.fill, block.astype(np.float64))
            if self.kind != "none":
                with np.errstate(over="ignore"):
                    block = np.where(self.scale == 0, 0, (block - self.shift) / divisor)
            stop = start + len(block)
            scaled[start:stop, :width] = np.clip(block, -limit, limit)
            scaled[start:stop, width:] = missing[:, self.marked]
        return scaled

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain numbers and lists; `from_json` gives the same bits back."""
        arrays = {name: getattr(self, name).tolist() for name in ("fill", "shift", "scale", "marked")}
        names = None if self.columns is None else list(self.columns)
        return {"kind": self.kind, "columns": names, **arrays, "rows": self.rows}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> FeatureScaler:
        """Return the scaler that `as_json` wrote."""
        try:
            fill, shift, scale = (np.array(record[name], np.float64) for name in ("fill", "shift", "scale"))
            marked, columns = np.array(record["marked"], np.int64), record["columns"]
            names = None if columns is None else tuple(str(name) for name in columns)
            rows, kind = int(record["rows"]), str(record["kind"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"the scales kept with the run are damaged ({error!r})") from None
        shaped = fill.ndim == 1 and fill.shape == shift.shape == scale.shape and marked.ndim == 1
        fitting = shaped and (names is None or len(names) == len(fill))
        inside = fitting and not ((marked < 0) | (marked >= len(fill))).any()
        if not inside or not np.isfinite([*fill, *shift, *scale]).all():
            raise DataError("the scales kept with the run are damaged: they do not match each other")
        return cls(kind=kind, columns=names, fill=fill, shift=shift, scale=scale, marked=marked, rows=rows)

    def describe(self, what: str, rows: str) -> str:
        """Describe the scaling in one line; what and rows name the features and the rows."""
        how = {
            "standard": "standardized by the mean and deviation",
            "robust": "scaled by the median and the distance of the quartiles",
        }.get(self.kind, "left in their own scales; empty entries by the middle")
        names = self.columns or ()
        own = [at for at in np.flatnonzero(self.scale == 0).tolist() if not names or not names[at].startswith(OTHER)]
        parts = [f"{what}: {how} of {self.rows:,} {rows} (--read.scale)"]
        parts += [f"never changing there, hence 0: {self._named(own)}"] if own else []
        marked = self._named(self.marked.tolist())
        parts += [f"missing values filled (--read.missing), with a column that marks them: {marked}"] if marked else []
        return "; ".join(parts)

    def _named(self, places: Sequence[int]) -> str:
        return listed(places if self.columns is None else [self.columns[i] for i in places])


def _statistics(
    block: np.ndarray, eps: float, kind: str, missing: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return fill, shift, scale (0 of a constant) and whether some but not all are missing of each column of (n, b)."""
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import StandardScaler

    known = np.isfinite(block)
    filled = known.any(0)
    block = np.where(known, block, np.nan)
    block[:, ~filled] = 0
    if not len(block):
        block = np.zeros((1, block.shape[1]))
    # a power of two of about its largest value divides each column, so that no square overflows or vanishes
    power = np.frexp(np.nanmax(np.abs(block), 0))[1]
    block = np.ldexp(block, -power)
    low, high = np.nanmin(block, 0), np.nanmax(block, 0)
    constant = high - low <= 8 * eps
    binary = ~constant & (np.isnan(block) | (block == low) | (block == high)).all(0)
    standard = StandardScaler().fit(block)
    mean, shift, scale = standard.mean_, standard.mean_, np.sqrt(standard.var_)
    if kind == "robust":
        first, shift, third = np.nanpercentile(block, [25, 50, 75], axis=0)
        scale = np.where(third > first, third - first, scale)  # they are equal if most values are one
    shift = np.where(constant, mean, np.where(binary, low, shift))
    scale = np.where(constant, 0, np.where(binary, high - low, scale))
    fill = SimpleImputer(strategy="median" if missing == "median" else "mean").fit(block).statistics_
    with np.errstate(over="ignore"):
        fill, shift, scale = (
            np.clip(np.ldexp(values, power), -np.finfo(float).max, np.finfo(float).max)
            for values in (fill, shift, scale)
        )
    fill = np.zeros_like(fill) if missing == "zero" else fill
    if kind == "none":
        shift, scale = np.zeros_like(shift), np.ones_like(scale)
    return fill, shift, scale, filled & ~known.all(0)


def scale_ratio(values: np.ndarray) -> tuple[float, int, int]:
    """Return the ratio of the scales of columns that change, and the columns with the largest and the smallest.

    The largest root mean square is compared with the smallest standard deviation (with the distance, if a column has
    two values): a year, about 2,000 everywhere, is far from a column of standard normal values.
    """
    from sklearn.preprocessing import StandardScaler

    standard, width = StandardScaler(), values.shape[1]
    low, high, binary = np.full(width, np.inf), np.full(width, -np.inf), np.ones(width, bool)
    for _, block in row_blocks(values):
        finite = np.isfinite(block)
        standard.partial_fit(np.where(finite, block, np.nan).astype(np.float64))
        low = np.minimum(low, block.min(0, initial=np.inf, where=finite))
        high = np.maximum(high, block.max(0, initial=-np.inf, where=finite))
    for _, block in row_blocks(values):
        binary &= (~np.isfinite(block) | (block == low) | (block == high)).all(0)
    mean, deviation = np.nan_to_num(standard.mean_), np.sqrt(np.nan_to_num(standard.var_))
    changing = high - low > 8 * np.finfo(values.dtype).eps * np.maximum(np.abs(low), np.abs(high))
    size = np.where(changing, np.hypot(mean, deviation), 0)
    deviations = np.where(changing, np.where(binary, high - low, deviation), np.inf)
    if not changing.any():
        return 1.0, 0, 0
    return float(size.max() / deviations.min()), int(size.argmax()), int(deviations.argmin())
