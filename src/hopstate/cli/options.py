"""The parser of a command's own options: what is mistyped is told with the nearest name, as `hopstate fit` does."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from hopstate.methods.hints import hint


class Options(argparse.ArgumentParser):
    """An argparse parser whose complaint about an option that is none suggests the nearest one."""

    _words: Sequence[str] = ()  # that are parsed

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[override]
        """Parse words (of the process where None) as argparse does."""
        self._words = [] if args is None else list(args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print usage and the complaint, and leave with status 2."""
        known = [flag.removeprefix("--") for flag in self._option_string_actions if flag.startswith("--")]
        if "arguments are required" in message:  # maybe given under a mistyped name, of which argparse says nothing
            names = (word.removeprefix("--").partition("=")[0] for word in self._words if word.startswith("--"))
            others = [f"--{name}" for name in names if name and "." not in name and name not in known]
            message += f"; unrecognized arguments: {' '.join(others)}" if others else ""
        super().error(f"{message}{hint(message, known)}")
