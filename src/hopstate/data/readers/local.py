"""Numbers and dates as people write them: 1,234.50, 1.234,50 €, 45%, 31/12/2026; asked about, not guessed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hopstate.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

FORMS = ("point", "comma")  # decimal signs, as --read.columns '[NAME=number:point]' has them
_GAP = "[,.'’ \u00a0\u2009\u202f]"  # between thousands
_MONEY = r"(?:[$€£¥₹]|[A-Z]{3}|Fr\.|kr\.?|zł)"
_DIGITS = rf"(?:\d{{1,3}}(?:{_GAP}\d{{3}})+|\d+)(?:[.,]\d*)?"
_NUMBER = rf"(?:[+\-−(]|{_MONEY}\s?)*{_DIGITS}(?:\s?(?:[%‰)]|{_MONEY}))*"
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_NUMERIC = r"(?!\d{4}-)(?P<a>\d{1,4})(?P<by>[./-])(?P<b>\d{1,2})(?P=by)(?P<c>\d{2,4})"
_DATE = re.compile(
    rf"(?:{_NUMERIC}|\d{{1,2}}[ .-]{{0,2}}{_MONTH}[ .,-]+\d{{2,4}}|{_MONTH}[ .]{{1,2}}\d{{1,2}},? \d{{4}})"
    r"(?P<clock>[T ,]{1,2}\d{1,2}[:.]\d\d.*)?",
    re.IGNORECASE,
)


def like_numbers(text: pd.Series) -> np.ndarray:
    """Return (n,) which texts are numbers but for separators, a sign of money or a percent sign.

    None where less than nine in ten of those that are not empty are numbers, written so or plainly.
    """
    import pandas as pd

    known = text[text != ""]
    plain = pd.to_numeric(known, errors="coerce").notna()
    other = known[~plain].str.fullmatch(_NUMBER).eq(True)
    found = np.zeros(len(text), bool)
    if len(known) and (int(plain.sum()) + int(other.sum())) >= 0.9 * len(known):
        found[text.index.get_indexer(other.index[other])] = True
    return found


def as_numbers(text: pd.Series, form: str) -> pd.Series:
    """Return texts as numbers, NaN where one is none; 45% is 45.

    Args:
        text: (n,) as they are written.
        form: the decimal sign, of `FORMS`.
    """
    import pandas as pd

    gap, sign = (",", r"\.") if form == "point" else (r"\.", ",")
    inner = rf"\d{{1,3}}(?:[{gap}'’ \u00a0\u2009\u202f]\d{{3}})+|\d+"
    good = text.str.fullmatch(_NUMBER).eq(True)
    below = text.str.contains(r"[(\-−]", regex=True)
    bare = text.str.replace(rf"{_MONEY}|[()%‰+\-−]", "", regex=True).str.strip()
    good &= bare.str.fullmatch(rf"(?:{inner})(?:{sign}\d*)?").eq(True)
    digits = bare.str.replace(rf"[{gap}'’ \u00a0\u2009\u202f]", "", regex=True).str.replace(",", ".", regex=False)
    found = pd.to_numeric(digits.where(good), errors="coerce")
    found = found.where(~below, -found)
    if form == "point":  # what is plain has a point, and perhaps an exponent
        found = found.fillna(pd.to_numeric(text, errors="coerce"))
    return found


def check_numbers(text: pd.Series, where: str, place: Callable[[int], str], otherwise: str) -> None:
    """Check that texts are no numbers that are written as people do.

    Args:
        text: (n,) without spaces around, "" where nothing is.
        where: file and column, for messages.
        place: from a row to how messages call it.
        otherwise: what else may be done than to write them plainly.
    """
    found = like_numbers(text)
    if not found.any():
        return
    row = int(np.argmax(found))
    cell = text.iloc[[row]]
    read = [f"{as_numbers(cell, form).iloc[0]:.15g} ({form})" for form in FORMS if as_numbers(cell, form).notna().all()]
    raise DataError(
        f"{where} holds {text.iloc[row]!r} in {place(row)} ({int(found.sum()):,} such rows): a number with separators "
        f"or a sign, which is read as text; write it plainly, {' or '.join(read) or 'such as 1234.5'}{otherwise}"
    )


def check_dates(text: pd.Series, where: str, place: Callable[[int], str], name: str) -> None:
    """Check that texts are no dates of a country's form; arguments as `check_numbers` has them."""
    forms = date_forms(text)
    if forms:
        row = int(np.argmax(text.str.fullmatch(_DATE).eq(True)))
        ways = " or ".join(f"--read.columns '[{name}=date:{form}]'" for form in forms)
        raise DataError(
            f"{where} holds dates such as {text.iloc[row]!r} in {place(row)}, whose form is not guessed; say it: "
            f"{ways}, or write ISO dates such as 2024-03-01 ('[{name}=category]' takes them as texts)"
        )


def date_forms(text: pd.Series) -> tuple[str, ...]:
    """Return the forms that dates of a country may have, as strptime has them; () where most texts are no such dates.

    >>> import pandas as pd
    >>> date_forms(pd.Series(["31.12.2026 14:05"])), date_forms(pd.Series(["1/2/26"]))
    (('%d.%m.%Y %H:%M',), ('%d/%m/%y', '%m/%d/%y'))
    """
    known = text[text != ""]
    met = known[known.str.fullmatch(_DATE).eq(True)]
    return _forms(met) if len(met) and 2 * len(met) >= len(known) else ()


def _forms(text: pd.Series) -> tuple[str, ...]:
    parts = text.str.extract(_DATE)
    first = parts.iloc[0]
    clock = "" if first["clock"] != first["clock"] else str(first["clock"])
    behind = ""
    if clock:
        cut = re.match(r"[T ,]*", clock)
        start = "" if cut is None else cut[0]
        fine = ":%S" if clock.count(":") > 1 else ""
        half = re.search(r"(\s*)[ap]m\s*$", clock, re.IGNORECASE)
        fine += ".%f" if re.search(r":\d\d\.\d", clock) else ""
        behind = f"{start}{'%I' if half else '%H'}:%M{fine}{half[1] + '%p' if half else ''}"
    if first["by"] != first["by"]:
        return (f"FORMAT{behind}",)  # the names of months are of a language
    by = first["by"]
    if len(first["a"]) == 4:
        return (f"%Y{by}%m{by}%d{behind}",)
    year = "%Y" if len(first["c"]) == 4 else "%y"
    days, months = f"%d{by}%m{by}{year}{behind}", f"%m{by}%d{by}{year}{behind}"
    above = [bool((parts[at].astype(float) > 12).any()) for at in ("a", "b")]
    return (days,) if above[0] and not above[1] else (months,) if above[1] and not above[0] else (days, months)


__all__ = ["FORMS", "as_numbers", "check_dates", "check_numbers", "date_forms", "like_numbers"]
