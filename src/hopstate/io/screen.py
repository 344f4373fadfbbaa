"""Where tables are printed: as wide as a terminal is, and never cut where output goes to a file or a pipe."""

from __future__ import annotations

import sys

from rich.console import Console

WIDE = 10_000  # characters; a pipe has no width


def screen() -> Console:
    """Return the console of stdout."""
    return Console(width=None if sys.stdout.isatty() else WIDE)
