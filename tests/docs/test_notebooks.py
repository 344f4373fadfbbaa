"""The notebooks run from their first cell to their last."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPSTATE_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    book = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in book.cells), "keep notebooks without outputs"
    nbclient.NotebookClient(book, timeout=None, resources={"metadata": {"path": str(tmp_path)}}).execute()


@pytest.mark.slow
def test_each_notebook_has_a_page_with_the_same_cells() -> None:
    assert len(NOTEBOOKS) == 4
    for path in NOTEBOOKS:
        page, at = path.with_suffix(".md").read_text(encoding="utf-8"), 0
        for cell in nbformat.read(path, as_version=4).cells:
            shown = cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```"
            at = page.find(shown, at) + 1
            assert at > 0, f"{path.name}: make made"
