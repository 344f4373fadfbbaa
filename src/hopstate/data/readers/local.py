"""Localized numbers and dates, such as 1,234.50, 1.234,50 €, 45% and 31/12/2026. Ambiguous ones raise an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hopstate.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

FORMS = ("point", "comma")  # decimal signs, as --read.columns '[NAME=number:point]' has them
_GAP = "'’ \u00a0\u2009\u202f"  # between thousands, beside the sign that is not the decimal one
_MONEY = r"(?:[$€£¥₹]|[A-Z]{3}|Fr\.|kr\.?|zł)"
_DIGITS = rf"(?:\d{{1,3}}(?:[,.{_GAP}]\d{{3}})+|\d+)(?:[.,]\d*)?"
_NUMBER = rf"(?:[+\-−(]|{_MONEY}\s?)*{_DIGITS}(?:\s?(?:[%‰)]|{_MONEY}))*"
_DATE = r"\d{1,4}[/. -]{1,2}(?:\d{1,2}|[A-Za-z]{3,9})[/. ,-]{1,2}\d{2,4}|[A-Za-z]{3,9}\.? \d{1,2},? \d{4}"
_DAYS = (
    *(f"{day}{by}{year}" for year in ("%Y", "%y") for by in "/.-" for day in (f"%d{by}%m", f"%m{by}%d")),
    *("%Y/%m/%d", "%Y.%m.%d", "%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y"),
)
_CLOCKS = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")
_DATE_FORMS = (*_DAYS, *(f"{day}{gap}{clock}" for gap in (" ", "T", ", ") for clock in _CLOCKS for day in _DAYS))
_TRIED = 100  # texts by which the forms of dates are found


def are_formatted_numbers(text: pd.Series) -> np.ndarray:
    """Return (n,) which texts are numbers but for separators, a sign of money or a percent sign.

    None if less than nine in ten of those that are not empty are numbers, written so or plainly.
    """
    import pandas as pd

    plain = pd.to_numeric(text, errors="coerce").notna()
    other = ~plain & text.str.fullmatch(_NUMBER).eq(True)
    enough = (plain | other).sum() >= 0.9 * (text != "").sum()
    return (other & enough).to_numpy(bool)


def parse_formatted_numbers(text: pd.Series, form: str) -> pd.Series:
    """Return texts as numbers, NaN where one is none; 45% is 45."""
    import pandas as pd

    gap, sign = (",", r"\.") if form == "point" else (r"\.", ",")
    bare = text.str.replace(rf"{_MONEY}|[()%‰+\-−]", "", regex=True).str.strip()
    good = text.str.fullmatch(_NUMBER).eq(True)
    good &= bare.str.fullmatch(rf"(?:\d{{1,3}}(?:[{gap}{_GAP}]\d{{3}})+|\d+)(?:{sign}\d*)?").eq(True)
    digits = bare.str.replace(rf"[{gap}{_GAP}]", "", regex=True).str.replace(",", ".", regex=False)
    numbers = pd.to_numeric(digits.where(good), errors="coerce")
    numbers = numbers.where(~text.str.contains(r"[(\-−]", regex=True), -numbers)
    # what is plain has a point, and perhaps an exponent
    return numbers.fillna(pd.to_numeric(text, errors="coerce")) if form == "point" else numbers


def check_numbers(text: pd.Series, where: str, place: Callable[[int], str], otherwise: str) -> None:
    """Raise DataError if nearly all texts are formatted numbers."""
    found = are_formatted_numbers(text)
    if not found.any():
        return
    row = int(np.argmax(found))
    read = {form: parse_formatted_numbers(text.iloc[[row]], form).iloc[0] for form in FORMS}
    plain = " or ".join(f"{number:.15g} ({form})" for form, number in read.items() if not np.isnan(number))
    raise DataError(
        f"{where} holds {text.iloc[row]!r} in {place(row)} ({int(found.sum()):,} such rows): a number with separators "
        f"or a sign, which is read as text; write it plainly, {plain or 'such as 1234.5'}{otherwise}"
    )


def check_dates(text: pd.Series, where: str, place: Callable[[int], str], name: str) -> None:
    """Raise DataError for texts of which most are dates of a country's form."""
    forms = date_forms(text)
    if forms:
        row = int(np.argmax(text.str.match(_DATE).eq(True)))
        ways = " or ".join(f"--read.columns '[{name}=date:{form}]'" for form in forms)
        raise DataError(
            f"{where} holds dates such as {text.iloc[row]!r} in {place(row)}, in an ambiguous format. Give it: "
            f"{ways}, or write ISO dates such as 2024-03-01 ('[{name}=category]' takes them as texts)"
        )


def date_forms(text: pd.Series) -> tuple[str, ...]:
    """Return the forms that dates of a country may have, as strptime has them; () if most texts are not such dates.

    >>> import pandas as pd
    >>> date_forms(pd.Series(["31.12.2026 14:05"])), date_forms(pd.Series(["1/2/26"]))
    (('%d.%m.%Y %H:%M',), ('%d/%m/%y', '%m/%d/%y'))
    """
    import pandas as pd

    def read(texts: pd.Series, form: str) -> int:
        return int(pd.to_datetime(texts, format=form, errors="coerce").notna().sum())

    filled = text[text != ""]
    sample = filled.head(_TRIED)
    if sample.empty or 2 * sample.str.match(_DATE).eq(True).sum() < len(sample):
        return ()
    counts = {form: read(filled, form) for form in _DATE_FORMS if read(sample, form)}
    best = max(counts.values(), default=0)
    return tuple(form for form, count in counts.items() if count == best) if 2 * best >= len(filled) else ()
