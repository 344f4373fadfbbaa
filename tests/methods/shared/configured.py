"""Configurations from settings by dotted name, without a parser: building one takes longer than most tests."""

from dataclasses import replace
from typing import Any


def configured(config: Any, settings: dict[str, Any]) -> Any:
    """Return a configuration with other values, each name "part.field" or "field"; parts are replaced as a whole."""
    parts: dict[str, Any] = {}
    for name, value in settings.items():
        head, _, rest = name.partition(".")
        if rest:
            parts.setdefault(head, {})[rest] = value
        else:
            parts[head] = value
    made = {k: configured(getattr(config, k), v) if isinstance(v, dict) else v for k, v in parts.items()}
    return replace(config, **made)
