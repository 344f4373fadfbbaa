"""Columns of texts as codes of what stands in each row, before it is decided which texts are categories of their own.

N rows, W different texts of a column. Which texts a model tells apart follows from its training rows alone; later rows
are looked up one by one, so that a row means the same alone and among any others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from hopstate.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

CATEGORY, OTHER = "category ", "other "
LEAST = 2  # training rows of a category of its own; rarer ones are "other"
MOST = 256  # categories of a column; other texts are others
FEW = 20  # rows of which it is not asked whether their texts recur


@dataclass(frozen=True, eq=False, kw_only=True)
class TextColumn:
    """One column of texts.

    Args:
        name: of the column.
        words: (W,) its texts in order, "" where rows without one have it.
        codes: (N,) int32 places in words; -1 is a text that stands in one row alone, and was not kept.
        before: how many columns of numbers and dates stand before it.
        asked: somebody said that it holds categories; else they must recur.
    """

    name: str
    words: tuple[str, ...]
    codes: np.ndarray
    before: int = 0
    asked: bool = False

    def take(self, rows: np.ndarray | slice) -> TextColumn:
        """Return the column of some rows."""
        return replace(self, codes=self.codes[rows])

    def names(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the columns that categories of their own, and all others, become."""
        return (*(f"{CATEGORY}{self.name}={one}" for one in words), f"{OTHER}{self.name}")

    def counts(self, rows: np.ndarray | slice = slice(None)) -> tuple[np.ndarray, int]:
        """Return in how many of the rows each text (W,) stands, and how many have one that was not kept."""
        codes = self.codes[rows]
        return np.bincount(codes[codes >= 0], minlength=len(self.words)), int((codes < 0).sum())

    def categories(self, rows: np.ndarray | slice = slice(None), least: int = LEAST) -> tuple[str, ...] | None:
        """Return the texts that some rows make categories of their own, None where theirs hardly recur.

        Args:
            rows: (n,) that decide.
            least: rows that have a category.
        """
        counts, alone = self.counts(rows)
        empty = np.array([one == "" for one in self.words], bool)
        some = int(counts[~empty].sum()) + alone
        total = some + int(counts[empty].sum())
        different = int((counts[~empty] > 0).sum()) + alone
        if not self.asked and total >= FEW and 2 * different > some:
            return None
        there = np.flatnonzero(~empty & (counts >= least)).tolist()
        order = sorted(there, key=lambda at: (-counts[at], self.words[at]))[:MOST]
        kept = sorted(self.words[at] for at in order)
        return (*kept, *([""] if (counts[empty] >= least).any() else []))

    def add_to(self, found: np.ndarray, columns: Sequence[str]) -> None:
        """Write a one into each row of zeros (N, F), in the column of its text, or in that of all others.

        Args:
            found: changed in place.
            columns: (F,) names, among them `OTHER` with this name.
        """
        place = {name: at for at, name in enumerate(columns)}
        other = place[f"{OTHER}{self.name}"]
        at = np.array([place.get(name, other) for name in self.names(self.words)[:-1]] + [other], np.int64)
        found[np.arange(len(found)), at[self.codes]] = 1  # the last stands for what was not kept

    def thin(self) -> TextColumn:
        """Return the column without texts that stand in one row alone, which no training rows can make a category."""
        kept = (self.counts()[0] >= LEAST) | np.array([one == "" for one in self.words], bool)
        place = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1).astype(np.int32)
        return replace(self, words=tuple(compress(self.words, kept)), codes=place[self.codes])

    def as_text(self) -> str:
        """Return all but the codes as a line of JSON."""
        kept = {"name": self.name, "words": self.words, "before": self.before, "asked": self.asked}
        return json.dumps(kept, ensure_ascii=False)

    @classmethod
    def from_text(cls, line: str, codes: np.ndarray) -> TextColumn:
        """Return the column of a line that `as_text` gave and its codes (N,).

        Raises:
            DataError: they are damaged, or do not fit.
        """
        try:
            kept = json.loads(line)
            words = tuple(map(str, kept["words"]))
            made = cls(
                name=str(kept["name"]), words=words, codes=codes, before=int(kept["before"]), asked=bool(kept["asked"])
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"a column of texts is damaged ({error!r})") from None
        if codes.dtype != np.int32 or (len(codes) and not -1 <= codes.min() <= codes.max() < len(words)):
            raise DataError(f"the codes of the column of texts {made.name!r} are none of its {len(words)} texts")
        return made


def coded(name: str, text: pd.Series, *, asked: bool, before: int) -> TextColumn:
    """Return a column of texts (N,), "" where there is none."""
    codes, words = text.factorize(sort=True)
    return TextColumn(name=name, words=tuple(map(str, words)), codes=codes.astype(np.int32), before=before, asked=asked)


def text_of(name: str, texts: set[str]) -> str | None:
    """Return the column of texts that one of a table's columns is of, None for numbers and dates."""
    if name.startswith(OTHER) and name.removeprefix(OTHER) in texts:
        return name.removeprefix(OTHER)
    if not name.startswith(CATEGORY):
        return None
    ends = [at for at, sign in enumerate(name) if sign == "="]
    return next((name[len(CATEGORY) : at] for at in ends if name[len(CATEGORY) : at] in texts), None)


def decoded(columns: Sequence[str], values: np.ndarray) -> tuple[TextColumn, ...]:
    """Return the columns of texts of a table that has them as columns (N, F) of 0 and 1 alone."""
    texts = [name.removeprefix(OTHER) for name in columns if name.startswith(OTHER)]
    of = [text_of(name, set(texts)) for name in columns]
    found = []
    for text in texts:
        mine = [at for at, one in enumerate(of) if one == text and columns[at].startswith(CATEGORY)]
        words = tuple(columns[at][len(CATEGORY) + len(text) + 1 :] for at in mine)
        block = values[:, mine] != 0
        codes = np.where(block.any(1), block.argmax(1) if mine else 0, -1).astype(np.int32)
        before = sum(one is None for one in of[: columns.index(f"{OTHER}{text}")])
        found.append(TextColumn(name=text, words=words, codes=codes, before=before, asked=True))
    return tuple(found)


__all__ = ["CATEGORY", "FEW", "LEAST", "MOST", "OTHER", "TextColumn", "coded", "decoded", "text_of"]
