"""What a service says of itself, a line each: requests, commits, alarms, trouble; as text or as JSON."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from hopstate.errors import HopstateWarning

Form = Literal["off", "text", "json"]


class Lines:
    """A writer of lines; what cannot be written is left out, for no request waits for a log of words.

    Args:
        form: "json" (an object each: time, event and its fields), "text" (the same for people), "off" for none.
        out: where; the process's stderr by default.
    """

    def __init__(self, form: Form = "off", out: TextIO | None = None) -> None:
        self.form, self._out = form, out

    def __call__(self, event: str, **fields: Any) -> None:
        """Write a line.

        Args:
            event: what happened, in a word.
            fields: more of it; numbers of seconds are rounded to microseconds.
        """
        if self.form == "off":
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        told = {key: round(value, 6) if isinstance(value, float) else value for key, value in fields.items()}
        if self.form == "json":
            line = json.dumps({"time": now, "event": event, **told}, default=str)
        else:
            line = f"{now} {event} " + " ".join(f"{key}={_plain(value)}" for key, value in told.items())
        try:
            print(line.rstrip(), file=self._out or sys.stderr, flush=True)
        except (OSError, ValueError):  # nobody reads it any more
            self.form = "off"

    def shown(self, otherwise: Callable[..., None]) -> Callable[..., None]:
        """Return what shows warnings: those of this library as lines of their own, where there are lines at all."""

        def show(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            if self.form != "off" and issubclass(category, HopstateWarning):
                self("warning", text=str(message))
            else:
                otherwise(message, category, *rest, **named)

        return show

    def take_warnings(self) -> None:
        """Let warnings of this library come as lines from here on."""
        warnings.showwarning = self.shown(warnings.showwarning)


def _plain(value: Any) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text and text else json.dumps(text)
