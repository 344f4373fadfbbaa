"""What `hopstate tune` may search of a method: ranges and choices by setting, and how they are written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from hopstate.errors import ConfigError

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, whole ones where both ends are written without a point.

    Args:
        low, high: the ends, both included.
        log: draw the logarithm evenly.

    Raises:
        ConfigError: high under low, or log with an end that is not above 0.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low <= self.high or (self.log and self.low <= 0):
            raise ConfigError(f"a range is low:high, and above 0 with :log; got {self}")

    def __str__(self) -> str:
        return f"{self.low}:{self.high}{':log' if self.log else ''}"


# settings by dotted name; a key may name several joined by commas, and its choices then hold as many values so joined
Space = dict[str, Range | list[Any]]


def parse_values(key: str, value: Any) -> Range | list[Any]:
    """Return the values of one key, from text or from what YAML holds.

    >>> parse_values("loop.optim.lr", "1e-4:1e-2:log")
    Range(low=0.0001, high=0.01, log=True)
    >>> parse_values("model.dim", "64, 128")
    [64, 128]
    """
    if isinstance(value, str):
        match = re.fullmatch(rf"\s*({NUMBER}):({NUMBER})(:log)?\s*", value)
        if match:
            return Range(_number(match[1]), _number(match[2]), bool(match[3]))
        value = [scalar(part.strip()) for part in value.split(",")]
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if not values or not all(v is None or isinstance(v, (bool, int, float, str)) for v in values):
        raise ConfigError(f"the space of {key} must be LOW:HIGH, LOW:HIGH:log or a list of values; got {value!r}")
    return values


def printable(space: Space) -> dict[str, Any]:
    """Return a space as plain values that YAML and JSON hold, and that `parse_values` takes back."""
    return {key: str(values) if isinstance(values, Range) else values for key, values in space.items()}


def _number(text: str) -> float:
    return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)


def scalar(text: str) -> Any:
    """Return a number, a boolean or None where a text writes one, else the text."""
    if re.fullmatch(NUMBER, text):  # YAML takes 1e-4 for a text
        return _number(text)
    return {"true": True, "false": False, "null": None}.get(text, text)
