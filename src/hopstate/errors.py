"""All errors and warnings that hopstate raises on purpose.

A message says what is wrong, where, and what to do next. Each class also derives from the matching built-in exception,
so that `except ValueError` keeps working.
"""

from __future__ import annotations

import dataclasses
import importlib
import operator
import re
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal


class HopstateError(Exception):
    """Base class of all errors raised on purpose."""


class ConfigError(HopstateError, ValueError):
    """An invalid setting, raised when the configuration is built and before any work starts."""


class ShapeError(HopstateError, ValueError):
    """Arguments of a public function whose shapes, dtypes or devices disagree."""


class DataError(HopstateError, ValueError):
    """Invalid input data: ids out of range, NaN, missing labels or empty splits."""


class DivergenceError(DataError):
    """NaN or infinite scores, for example because training diverged."""


class FormatError(DataError):
    """A file whose content does not match its name or format."""


class MissingFileError(HopstateError, FileNotFoundError):
    """A file or folder that does not exist."""


class UnreadableFileError(HopstateError, OSError):
    """A file that exists but cannot be read, for example for lack of permission."""


class MissingExtraError(HopstateError, ImportError):
    """A missing optional dependency; the message names the extra to install."""


class DownloadError(HopstateError, OSError):
    """A failed download; the message says what to fetch by hand and where to put it."""


class CheckpointError(HopstateError, RuntimeError):
    """A run or checkpoint that cannot be used: another model or version, damaged, or incomplete."""


class StorageError(HopstateError, OSError):
    """A file that could not be written; the previous content is unchanged."""


class BusyError(StorageError):
    """A folder or file that another process is using; the message names the process."""


class RanksError(HopstateError, RuntimeError):
    """Another rank of a distributed run has ended; the message says how to resume."""


class TimeOrderError(DataError):
    """Events that violate a required time order."""


class FutureTimeError(TimeOrderError):
    """A served event too far in the future; accepting it would make all earlier events late."""


class LeakError(HopstateError, AssertionError):
    """A prediction that changed although only events at or after its time were changed."""


# caused by files, disks, libraries or other processes, so all of several runs would fail
SHARED_ERRORS = (OSError, ImportError, CheckpointError, RanksError)


def import_extra(module: str, extra: str) -> Any:
    """Return a module of an optional dependency; if it is missing, the error names the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(f"{module} is not installed: pip install 'hopstate[{extra}]'") from None


def described(error: Exception) -> str:
    """Return an error's message, with the type name if hopstate did not raise it on purpose.

    >>> described(ConfigError("loop.seed is negative")), described(MemoryError())
    ('loop.seed is negative', 'MemoryError')
    """
    text = str(error).strip()
    return text if text and isinstance(error, HopstateError) else ": ".join(filter(None, (type(error).__name__, text)))


class HopstateWarning(UserWarning):
    """Base class of warnings that do not stop the work."""


class SlowPathWarning(HopstateWarning):
    """A fast path is unavailable; given once per reason."""


_muted: ContextVar[bool] = ContextVar("muted_warnings", default=False)


@contextmanager
def muted_warnings() -> Iterator[None]:
    """Silence `warn` in this thread or task; the process's warning filters stay unchanged."""
    token = _muted.set(True)
    try:
        yield
    finally:
        _muted.reset(token)


def warn(message: str, stacklevel: int = 1) -> None:
    """Issue a HopstateWarning, except inside `muted_warnings`.

    Args:
        message: text of the warning.
        stacklevel: level relative to the caller, as in `warnings.warn`.
    """
    if not _muted.get():
        warnings.warn(message, HopstateWarning, stacklevel=stacklevel + 1)


def listed(items: Iterable[object], limit: int = 5) -> str:
    """Return the first items of many as text.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    texts = list(map(str, items))
    more = len(texts) - limit
    return ", ".join(texts[:limit]) + (f" and {more:,} more" if more > 0 else "")


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return a hint such as ``; did you mean 'num_hops'?`` for the choice closest to a name, or "".

    See `closest` for the matching rule.

    >>> nearest("num_hop", ["num_hops", "dim"])
    "; did you mean 'num_hops'?"
    """
    if len(name) > 100:  # comparison is quadratic in the length
        return ""
    candidates = [choice for choice in choices if len(choice) <= 100]
    if not name.isascii():
        plain = unicodedata.normalize("NFC", name)
        for choice in candidates:
            if choice != name and unicodedata.normalize("NFC", choice) == plain:
                return f"; did you mean {choice!r} (the same text, but its accents in another Unicode form)?"
    found = closest(name, candidates)
    return "" if found is None else f"; did you mean {found!r}?"


def closest(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice that a mistyped name most likely means, or None.

    Shared leading and trailing words are ignored, so `time_column` does not match `id_column`. The remaining part may
    differ by two inserted, missing, wrong or swapped letters (one in short words), or abbreviate the choice. Separators
    and whole words of the choice, such as its group, may be missing.

    >>> closest("loop.epcohs", ["loop.epochs", "loop.seed"]), closest("dim", ["model.dim"]), closest("x_id", ["u_id"])
    ('loop.epochs', 'model.dim', None)
    """
    words = _words(name)
    ranked = [(rank, choice) for choice in choices if (rank := _match_key(words, _words(choice)))]
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[\W_]+", text.lower()) if word] or [text]


def _match_key(name: list[str], choice: list[str]) -> tuple[int, int, int] | None:
    """Return a sort key for the distance between the words of a name and a choice, or None if they do not match.

    Typos sort before abbreviations, fewer edits before more, and late edits before early ones.
    """
    rest, left = name[(same := _common_prefix(name, choice)) :], choice[same:]
    same = _common_prefix(rest[::-1], left[::-1])
    a, b = "".join(rest[: len(rest) - same]), "".join(left[: len(left) - same])
    short, long = (a, b) if len(a) < len(b) else (b, a)
    limit = min(2, (len(long) + 1) // 3)
    edits = _edits(a, b, limit) if len(set(a) ^ set(b)) <= 2 * limit else limit + 1
    if edits <= limit:
        return 0, edits, -_common_prefix(a, b)
    longer = iter(long)
    if len(short) > 2 and (
        _common_prefix(short, long) >= len(short) - (len(short) > 5)  # history, historical
        or (2 * len(short) >= len(long) and short[0] == long[0] and all(letter in longer for letter in short))
    ):
        return 1, len(long) - len(short), 0
    if _is_subsequence(name, choice) or (name[-1] == choice[-1] and _is_subsequence(choice, name)):
        return 1, len(a) + len(b), 0
    return None


def _common_prefix(a: Sequence[str], b: Sequence[str]) -> int:
    count = 0
    for x, y in zip(a, b):
        if x != y:
            break
        count += 1
    return count


def _is_subsequence(part: Sequence[str], words: Sequence[str]) -> bool:
    following = iter(words)
    return all(word in following for word in part)


def _edits(a: str, b: str, limit: int) -> int:
    """Return the edit distance with swaps between a and b; any number above `limit` if it is larger."""
    a, b = a[(same := _common_prefix(a, b)) :], b[same:]
    if not a or not b:
        return len(a) + len(b)
    if not limit or abs(len(a) - len(b)) > limit:
        return limit + 1
    tries = [(a[1:], b), (a, b[1:]), (a[1:], b[1:])]
    if a[:2] == b[1::-1]:
        tries.append((a[2:], b[2:]))
    return 1 + min(_edits(x, y, limit - 1) for x, y in tries)


_idle_reset: ContextVar[bool] = ContextVar("idle_reset", default=False)


@contextmanager
def idle_reset() -> Iterator[None]:
    """Reset unused settings to their defaults inside the block instead of rejecting them, for existing runs."""
    token = _idle_reset.set(True)
    try:
        yield
    finally:
        _idle_reset.reset(token)


def check_range(
    group: str = "",
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
    **values: float | None,
) -> None:
    """Raise ConfigError for a value that is NaN or outside a range.

    Args:
        group: prefix of the names in messages, such as "loop.".
        minimum, maximum: inclusive bounds.
        above, below: exclusive bounds.
        values: values by name. None passes.

    >>> check_range("model.", minimum=0, below=1, dropout=0.5)
    """
    ends = ((minimum, operator.ge), (above, operator.gt), (maximum, operator.le), (below, operator.lt))
    for name, value in values.items():
        if value is None or all(end is None or holds(value, end) for end, holds in ends):
            continue
        low = f"at least {minimum}" if above is None else f"above {above}"
        inside = f"{'[' if above is None else '('}{minimum if above is None else above}, "
        inside += f"{below})" if maximum is None else f"{maximum}]"
        rule = f"must be {low}" if maximum is None and below is None else f"lies in {inside}"
        raise ConfigError(f"{group}{name} {rule}; got {value}")


def refuse_idle(config: Any, **idle: str | Literal[False]) -> None:
    """Reject non-default settings that have no effect given the other settings.

    Inside `idle_reset`, set them to their defaults instead.

    Args:
        config: a dataclass whose named fields have defaults.
        idle: for each field, the reason it has no effect, or False if it has one.

    Raises:
        ConfigError: a field has no effect; the message gives the reason.

    >>> @dataclasses.dataclass
    ... class Config:
    ...     width: int = 3
    >>> refuse_idle(Config(), width="nothing is wide here")
    """
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    for name, why in idle.items():
        if why and getattr(config, name) != defaults[name]:
            if _idle_reset.get():
                object.__setattr__(config, name, defaults[name])  # frozen, and still being made
                continue
            raise ConfigError(
                f"{name}={getattr(config, name)} has no effect: {why}; leave it out (its default is {defaults[name]})"
            )
