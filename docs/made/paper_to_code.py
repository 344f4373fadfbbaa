"""Make docs/paper-to-code.md from the tables in the packages' docstrings.

    python docs/made/paper_to_code.py            writes the page
    python docs/made/paper_to_code.py --check    fails if the page is not current

A table begins with a line "| PAPER | function |". A row has names in backquotes, relative to the package or to hopstate.
A name without a module is in the module of the name before it.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "paper-to-code.md"
FIRST = ("methods.gmn", "methods.nagphormer", "compensation.top", "methods.dyg_mamba", "methods.ctdg_ssm")
HEAD = """# Paper to code

Find the function or class of an equation or algorithm. Files are under `src/hopstate`. The docstring of a file names
every deviation from the paper. `docs/made/paper_to_code.py` makes this page from docstrings.
"""


def packages() -> list[str]:
    """Return the packages, those of the papers first."""
    source = ROOT / "src" / "hopstate"
    found = [path.parent.relative_to(source).as_posix().replace("/", ".") for path in source.rglob("__init__.py")]
    rest = sorted(name for name in found if name not in ("", ".", *FIRST))
    return [*FIRST, *rest]


def tables(package: str) -> list[tuple[str, list[tuple[str, list[str]]]]]:
    """Return (paper, rows of (place in it, names)) of the tables in a package's docstring."""
    found: list[tuple[str, list[tuple[str, list[str]]]]] = []
    of_paper = False
    for line in (importlib.import_module(f"hopstate.{package}").__doc__ or "").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 2 or not line.startswith("|"):
            of_paper = False
        elif cells[1] == "function":
            of_paper = True
            found.append((cells[0], []))
        elif of_paper and set(cells[0]) != {"-"}:  # other tables are no map
            found[-1][1].append((cells[0], re.findall(r"`([^`]+)`", cells[1])))
    return found


def resolved(package: str, names: list[str]) -> list[tuple[str, str]]:
    """Return (file, name) of each name.

    Raises:
        LookupError: there is no such name.
    """
    found: list[tuple[str, str]] = []
    beside = f"hopstate.{package}"
    for name in names:
        module, _, last = name.rpartition(".")
        tried = [f"hopstate.{package}.{module}", f"hopstate.{module}"] if module else [beside]
        holder = next((held for place in tried if (held := _module(place)) is not None and hasattr(held, last)), None)
        if holder is None:
            raise LookupError(f"hopstate.{package}: its docstring names {name}, which is nowhere")
        beside = holder.__name__
        file = Path(str(holder.__file__)).relative_to(ROOT / "src" / "hopstate")
        found.append((file.as_posix(), last))
    return found


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def page() -> str:
    """Return the text of the page."""
    sections: dict[str, list[str]] = {}
    for package in packages():
        for paper, rows in tables(package):
            lines = sections.setdefault(paper, [])
            for place, names in rows:
                pairs = resolved(package, names)
                files = ", ".join(f"`{file}`" for file in dict.fromkeys(file for file, _ in pairs))
                lines.append(f"| {place} | {files} | {', '.join(f'`{name}`' for _, name in pairs)} |")
    shared = sections.pop("what all share", [])
    text = HEAD
    for paper, lines in [*sections.items(), ("Shared by all", shared)]:
        text += f"\n## {paper.replace(', arXiv', ' — arXiv')}\n\n| paper | file | name |\n|---|---|---|\n"
        text += "".join(f"{line}\n" for line in lines)
    return text


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text(encoding="utf-8") != page() and f"{PAGE} is old: python docs/made/paper_to_code.py")
    PAGE.write_text(page(), encoding="utf-8")
