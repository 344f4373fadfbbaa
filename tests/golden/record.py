"""Write the golden values of every method, or of the given ones.

    make golden                                    # all
    .venv/bin/python tests/golden/record.py gcn    # one

A commit that changes a golden value on purpose says which entry changed and why.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

import cases
import commands

VALUES = cases.HERE / "values"


def rounded(value: Any) -> Any:
    """Return numbers with ten significant digits, in nested containers."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return float(f"{value:.10g}") if isinstance(value, float) else value


def write(name: str, values: dict[str, Any]) -> None:
    """Write golden values, a line for each list."""
    text = json.dumps(rounded(values), indent=1)
    lines, inside = [], False
    for line in text.splitlines():
        part = line.strip()
        if inside:
            lines[-1] += part if part.startswith("]") else f"{' ' if lines[-1][-1] == ',' else ''}{part}"
        else:
            lines.append(line)
        inside = (inside or part.endswith("[")) and not part.startswith("]")
    (VALUES / f"{name}.json").write_text("\n".join(lines) + "\n")


def record(method: str) -> None:
    """Train a method on its datasets in float64 and in float32, and write the values."""
    found: dict[str, Any] = {}
    for name in cases.KINDS[cases.METHODS[method][0]].sets:
        found[name] = {}
        for precision in ("64", "32"):
            with tempfile.TemporaryDirectory() as home:
                found[name][precision] = cases.fit(method, name, Path(home) / "run", precision).values()
    write(method, found)


def main(names: list[str]) -> None:
    """Record the given methods, or all."""
    VALUES.mkdir(exist_ok=True)
    for name in names or [*cases.METHODS, "commands"]:
        if name == "commands":
            with tempfile.TemporaryDirectory() as home:
                write(name, commands.outputs(Path(home)))
        else:
            record(name)
        print("recorded", name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
