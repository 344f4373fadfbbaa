"""What a command found: a record, printed as JSON or as people read it, and the status that the process ends with.

Every command returns an `Answer`, and `hopstate.cli.main` alone prints it. docs/command-line.md lists the keys of each
record and the statuses; a test holds both to the commands.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


@dataclass(frozen=True)
class Answer:
    """What a command found.

    Args:
        record: by stable keys; numbers as numbers.
        show: prints it for people.
        status: that the process ends with.
        then: what goes on after the record is printed, and returns the status: a service.
    """

    record: Mapping[str, Any]
    show: Callable[[], object]
    status: int = DONE
    then: Callable[[], int] | None = None


def lines(*texts: str) -> Callable[[], None]:
    return lambda: print(*texts, sep="\n")


def json_text(value: Any) -> str:
    """Return a value as one line of JSON; NaN and infinities become null, times and paths their text.

    >>> json_text({"a": float("nan"), "b": (1, 2)})
    '{"a": null, "b": [1, 2]}'
    """
    return json.dumps(plain(value), ensure_ascii=True)


def plain(value: Any) -> Any:
    import numpy as np

    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else str(value)


def rows_of(table: Any) -> list[dict[str, Any]]:
    """Return a pandas table as records, gaps as None."""
    return [{key: None if cell != cell else cell for key, cell in row.items()} for row in table.to_dict("records")]
