"""Every error and warning that hopstate raises on purpose, on one page.

A message says what was wrong, where, and what to do next. Each class also derives from the built-in that
a caller would expect, so that `except ValueError` keeps working.
"""

from __future__ import annotations

import dataclasses
import operator
import re
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal


class HopstateError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(HopstateError, ValueError):
    """A setting that cannot work: raised when the configuration is built, before any work starts."""


class ShapeError(HopstateError, ValueError):
    """Tensors or arrays whose shapes, dtypes or devices disagree at a public door."""


class DataError(HopstateError, ValueError):
    """Input data that break a record's promise: ids out of range, NaN, missing labels, empty splits."""


class DivergenceError(DataError):
    """Scores or predictions that are NaN or infinite, for example because training diverged."""


class FormatError(DataError):
    """A file whose content is not what its name or its format says: truncated, unknown, missing a part."""


class MissingFileError(HopstateError, FileNotFoundError):
    """A file or folder that is not there."""


class UnreadableFileError(HopstateError, OSError):
    """A file that is there and cannot be read: no permission, or a folder, a pipe or a device instead of a file."""


class MissingExtraError(HopstateError, ImportError):
    """An optional library that is needed for what was asked; the message names the extra to install."""


class DownloadError(HopstateError, OSError):
    """A download that failed; the message says what to fetch by hand and where to put it."""


class CheckpointError(HopstateError, RuntimeError):
    """A run or checkpoint that cannot be used: another model, another version, damaged, or incomplete."""


class StorageError(HopstateError, OSError):
    """A file that could not be written; whatever stood there before is untouched."""


class BusyError(StorageError):
    """A folder or file that another process is at work on; the message names the process."""


class RanksError(HopstateError, RuntimeError):
    """A process that trained one model together with this one has ended; the message says how to go on."""


class TimeOrderError(DataError):
    """Events offered out of time order where order is a promise."""


class FutureTimeError(TimeOrderError):
    """An event of a live run whose time is further ahead than may be: all before it would be late from then on."""


class LeakError(HopstateError, AssertionError):
    """A prediction that changed although only events at or after its time were changed."""


# of files, disks, libraries and other processes: if one of several runs meets them, all would
SHARED_ERRORS = (OSError, ImportError, CheckpointError, RanksError)


def described(error: Exception) -> str:
    """Return the message of an error that ends one of several runs, with the name of one that nobody raised on purpose.

    >>> described(ConfigError("loop.seed is negative")), described(MemoryError())
    ('loop.seed is negative', 'MemoryError')
    """
    text = str(error).strip()
    return text if text and isinstance(error, HopstateError) else ": ".join(filter(None, (type(error).__name__, text)))


class HopstateWarning(UserWarning):
    """Something a user should know that does not stop the work."""


class SlowPathWarning(HopstateWarning):
    """A fast path could not be used; the message names the reason. Given once per reason."""


_muted: ContextVar[bool] = ContextVar("muted_warnings", default=False)


@contextmanager
def muted_warnings() -> Iterator[None]:
    """Within it, `warn` prints nothing in this thread or task; the warning settings of the process stay as they are."""
    token = _muted.set(True)
    try:
        yield
    finally:
        _muted.reset(token)


def warn(message: str, stacklevel: int = 1) -> None:
    """Give a HopstateWarning, except within `muted_warnings`.

    Args:
        message: what the user should know.
        stacklevel: as `warnings.warn` has it for the caller.
    """
    if not _muted.get():
        warnings.warn(message, HopstateWarning, stacklevel=stacklevel + 1)


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return a hint such as ``; did you mean 'num_hops'?`` for the closest of choices to name, or nothing.

    What counts as close: `closest`.

    >>> nearest("num_hop", ["num_hops", "dim"])
    "; did you mean 'num_hops'?"
    """
    if len(name) > 100:  # comparing takes the product of the lengths
        return ""
    known = [choice for choice in choices if len(choice) <= 100]
    if not name.isascii():
        plain = unicodedata.normalize("NFC", name)
        for choice in known:
            if choice != name and unicodedata.normalize("NFC", choice) == plain:
                return f"; did you mean {choice!r} (the same text, but its accents in another Unicode form)?"
    found = closest(name, known)
    return "" if found is None else f"; did you mean {found!r}?"


def closest(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice that a mistyped name stands for, None where there is none.

    Words that both begin or end with say nothing: `time_column` is no slip of `id_column`. What is left may differ by
    two letters too many, missing, wrong or swapped (by one in short words), or be short for the other; underscores,
    dots and the like may be missing, and so may whole words of the choice, such as its group.

    >>> closest("loop.epcohs", ["loop.epochs", "loop.seed"]), closest("dim", ["model.dim"]), closest("x_id", ["u_id"])
    ('loop.epochs', 'model.dim', None)
    """
    own = _words(name)
    ranked = [(rank, choice) for choice in choices if (rank := _likeness(own, _words(choice)))]
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[\W_]+", text.lower()) if word] or [text]


def _likeness(own: list[str], other: list[str]) -> tuple[int, int, int] | None:
    """Return how unlike the words of a name and of a choice are, in an order; None where neither stands for the other.

    Slips come before what is left out, fewer before more, late before early ones: few words begin with one.
    """
    rest, left = own[(same := _alike(own, other)) :], other[same:]
    same = _alike(rest[::-1], left[::-1])
    a, b = "".join(rest[: len(rest) - same]), "".join(left[: len(left) - same])
    short, long = (a, b) if len(a) < len(b) else (b, a)
    most = min(2, (len(long) + 1) // 3)
    edits = _edits(a, b, most) if len(set(a) ^ set(b)) <= 2 * most else most + 1
    if edits <= most:
        return 0, edits, -_alike(a, b)
    longer = iter(long)
    if len(short) > 2 and (
        _alike(short, long) >= len(short) - (len(short) > 5)  # history, historical
        or (2 * len(short) >= len(long) and short[0] == long[0] and all(letter in longer for letter in short))
    ):
        return 1, len(long) - len(short), 0
    if _within(own, other) or (own[-1] == other[-1] and _within(other, own)):
        return 1, len(a) + len(b), 0
    return None


def _alike(a: Sequence[str], b: Sequence[str]) -> int:
    count = 0
    for x, y in zip(a, b):
        if x != y:
            break
        count += 1
    return count


def _within(some: Sequence[str], words: Sequence[str]) -> bool:
    following = iter(words)
    return all(word in following for word in some)


def _edits(a: str, b: str, most: int) -> int:
    """Return how many letters too many, missing, wrong or swapped make a of b; beyond most, any number above it."""
    a, b = a[(same := _alike(a, b)) :], b[same:]
    if not a or not b:
        return len(a) + len(b)
    if not most or abs(len(a) - len(b)) > most:
        return most + 1
    tries = [(a[1:], b), (a, b[1:]), (a[1:], b[1:])]
    if a[:2] == b[1::-1]:
        tries.append((a[2:], b[2:]))
    return 1 + min(_edits(x, y, most - 1) for x, y in tries)


_idle_reset: ContextVar[bool] = ContextVar("idle_reset", default=False)


@contextmanager
def idle_reset() -> Iterator[None]:
    """Within it settings that do nothing are set to their defaults in silence: those of runs made before."""
    token = _idle_reset.set(True)
    try:
        yield
    finally:
        _idle_reset.reset(token)


def check_range(
    group: str = "",
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    **values: float | None,
) -> None:
    """Raise ConfigError for a value outside a range, and for one that is no number (NaN).

    Args:
        group: what messages put before the names, "loop." say.
        least, above, most, below: ends of the range; least and most belong to it.
        values: by name; None stands for no value, and passes.

    >>> check_range("model.", least=0, below=1, dropout=0.5)
    """
    ends = ((least, operator.ge), (above, operator.gt), (most, operator.le), (below, operator.lt))
    for name, value in values.items():
        if value is None or all(end is None or holds(value, end) for end, holds in ends):
            continue
        low = f"at least {least}" if above is None else f"above {above}"
        inside = f"{'[' if above is None else '('}{least if above is None else above}, "
        inside += f"{below})" if most is None else f"{most}]"
        told = f"must be {low}" if most is None and below is None else f"lies in {inside}"
        raise ConfigError(f"{group}{name} {told}; got {value}")


def refuse_idle(config: Any, **idle: str | Literal[False]) -> None:
    """Refuse settings that do nothing beside the others: those of a dataclass that are not at their defaults.

    Within `idle_reset` they are put there instead.

    Args:
        config: a dataclass whose named fields have defaults.
        idle: why a field has no effect, by its name; False where it has one.

    Raises:
        ConfigError: naming the field and the reason.

    >>> @dataclasses.dataclass
    ... class Config:
    ...     width: int = 3
    >>> refuse_idle(Config(), width="nothing is wide here")
    """
    usual = {field.name: field.default for field in dataclasses.fields(config)}
    for name, why in idle.items():
        if why and getattr(config, name) != usual[name]:
            if _idle_reset.get():
                object.__setattr__(config, name, usual[name])  # frozen, and still being made
                continue
            raise ConfigError(
                f"{name}={getattr(config, name)} does nothing here: {why}; leave it out (its default is {usual[name]})"
            )
