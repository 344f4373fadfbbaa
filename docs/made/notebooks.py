"""Make docs/notebooks/NAME.md, a page with outputs, from each notebook.

    python docs/made/notebooks.py [NAME ...]    runs the notebooks in a temporary folder and writes the pages

Notebooks are kept without outputs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat

DOCS = Path(__file__).parents[1]
IMAGES = DOCS / "images"
SETUP = """%matplotlib inline
%config InlineBackend.figure_formats = ["svg"]
import matplotlib
matplotlib.rcParams["svg.hashsalt"] = "hopstate"  # the same ids each time
"""


def page_of(path: Path) -> str:
    """Return the page of a notebook; pictures go into docs/images."""
    book = nbformat.read(path, as_version=4)
    book.cells.insert(0, nbformat.v4.new_code_cell(SETUP))
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(book, timeout=None, resources={"metadata": {"path": folder}}).execute()
        here = (f"{Path(folder).resolve()}/", f"{folder}/")  # paths of this machine
    _, first, *rest = book.cells
    link = f"From the notebook [{path.name}]({path.name})."
    parts = [first.source, link, *(part for at, cell in enumerate(rest) for part in parts_of(cell, path.stem, at))]
    text = "\n\n".join(parts) + "\n"
    return text.replace(here[0], "").replace(here[1], "")


def parts_of(cell: Any, name: str, at: int) -> list[str]:
    """Return a cell as Markdown: its text, or its code with output and pictures."""
    if cell.cell_type == "markdown":
        return [cell.source]
    printed = "".join(one.text for one in cell.outputs if one.output_type == "stream" and one.name == "stdout")
    parts = [f"```python\n{cell.source}\n```"]
    for one in cell.outputs:
        data = one.get("data", {})
        if "image/svg+xml" in data:
            file = IMAGES / f"notebook-{name}-{at}.svg"
            file.write_text(data["image/svg+xml"], encoding="utf-8")
            parts.append(f"![Figure of the cell above](../images/{file.name})")
        elif "text/plain" in data and one.output_type == "execute_result":
            printed += f"{data['text/plain']}\n"
    return [parts[0], *([f"```text\n{printed.rstrip()}\n```"] if printed.strip() else []), *parts[1:]]


def main(names: list[str]) -> None:
    """Write the pages of these notebooks, or of all."""
    os.environ |= {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "SOURCE_DATE_EPOCH": "0"}
    for path in sorted((DOCS / "notebooks").glob("*.ipynb")):
        if not names or path.stem in names:
            path.with_suffix(".md").write_text(page_of(path), encoding="utf-8")
            print(path.with_suffix(".md").relative_to(DOCS))


if __name__ == "__main__":
    main(sys.argv[1:])
