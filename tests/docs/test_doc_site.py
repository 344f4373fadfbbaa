"""The pages agree with the code: links lead somewhere, names that are named exist."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hopstate"
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")), *sorted(SOURCE.rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}


def broken(page: Path) -> list[str]:
    found = []
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert not broken(page)


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\n[a](page.md#one) [b](page.md#two) [c](nowhere.md) `[d](code.md)` [e](https://x.org)\n")
    assert broken(page) == ["page.md#two", "nowhere.md"]


def names_in(path: Path) -> set[str]:
    """Return the functions, classes and constants at the top of a file."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {t.id for t in targets if isinstance(t, ast.Name)}
    return found


def rows() -> list[tuple[str, list[Path], list[str]]]:
    """Return (paper's place, files, names) of the map's rows."""
    found = []
    for line in (ROOT / "docs" / "paper-to-code.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and "`" in cells[1]:
            paths, names = (re.findall(r"`([^`]+)`", cell) for cell in cells[1:])
            found.append((cells[0], [SOURCE / path for path in paths], names))
    return found


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_the_map_from_paper_to_code_names_what_exists(row: tuple[str, list[Path], list[str]]) -> None:
    _, paths, names = row
    defined = [names_in(path) for path in paths]  # a missing file fails here
    assert names
    for name in names:
        assert any(name in there for there in defined), name
    for path, there in zip(paths, defined, strict=True):
        assert there & set(names), f"none of {names} is in {path}"


@pytest.mark.parametrize(
    ("place", "name", "words"),
    [
        ("Eq. 11", "span_step", "equation 11"),
        ("Alg. 3:", "CTDGSSM", "algorithm 3"),
        ("Alg. 1, Hop2Token", "hop_powers", "algorithm 1"),
        ("Alg. 2, Eq. 8-9: bidirectional block", "BidirectionalMamba", "algorithm 2 and equations 8-9"),
        ("Eq. 4-6: linear compensation", "LinearTop", "compensat"),
        ("Alg. 2, Eq. 13", "top", "algorithm 2"),
    ],
)
def test_a_reader_of_the_papers_is_there_in_three_steps(place: str, name: str, words: str) -> None:
    """README, the page, the file; and the file says that this is it."""
    assert "](docs/paper-to-code.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    ((_, paths, _),) = (row for row in rows() if row[0].startswith(place) and name in row[2])
    (path,) = (path for path in paths if name in names_in(path))
    assert words in path.read_text(encoding="utf-8").lower()


def test_the_map_is_what_the_packages_say() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "made" / "paper_to_code.py"))
    assert (ROOT / "docs" / "paper-to-code.md").read_text(encoding="utf-8") == made["page"](), (
        "a package's docstring has changed: python docs/made/paper_to_code.py"
    )
    with pytest.raises(LookupError, match=r"names model\.Nothing"):
        made["resolved"]("methods.gmn", ["model.Nothing"])


@pytest.mark.parametrize("name", ["rooms.svg", "prediction.svg"])
def test_the_drawings_are_those_of_the_code(name: str) -> None:
    made = runpy.run_path(str(ROOT / "docs" / "made" / "drawings.py"))
    assert (ROOT / "docs" / "images" / name).read_text(encoding="utf-8") == made["DRAWINGS"][name](), (
        "imports have changed: python docs/made/drawings.py"
    )
    assert f"](images/{name})" in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("__init__.py")), ids=lambda path: path.parent.name)
def test_every_package_opens_with_at_most_25_lines(path: Path) -> None:
    opening = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert opening
    assert len(opening.splitlines()) <= 25


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("README.md")), ids=lambda path: path.parent.name)
def test_every_readme_of_a_package_is_at_most_25_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 25


@pytest.mark.parametrize("folder", sorted((SOURCE / "ops").glob("*/__init__.py")), ids=lambda path: path.parent.name)
def test_every_operator_has_a_readme_that_names_its_files(folder: Path) -> None:
    if folder.parent.name == "cpu":  # what kernels are written in, no operator
        return
    text = (folder.parent / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+\.py)`", text)
    assert named
    assert all((folder.parent / name).is_file() for name in named)


def test_the_map_covers_all_five_papers() -> None:
    text = (ROOT / "docs" / "paper-to-code.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (.*)$", text, re.M)
    for paper in ("Graph Mamba", "NAGphormer", "TOP", "DyG-Mamba", "CTDG-SSM"):
        assert any(head.startswith(paper) for head in heads)
    assert len(rows()) > 50


def test_files_named_in_the_derivations_exist() -> None:
    text = (ROOT / "docs" / "derivations.md").read_text(encoding="utf-8")
    named = re.findall(r"`(src/[^`]+)`", text)
    assert named
    assert all((ROOT / path).is_file() for path in named)


def test_every_method_stands_in_the_guide_or_the_readme() -> None:
    from hopstate.methods import MODULES

    text = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/choose.md"))
    assert not [name for name in MODULES if f"`{name}`" not in text]


def test_recipes_say_what_was_measured() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "made" / "recipes.py"))
    assert (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8") == made["page"](), (
        "results have changed: python docs/made/recipes.py"
    )
    made["page"].__globals__["MEASURED"] = (("x", "x", "", "x", "2026-11-23-speed.md", ("no such figure",)),)
    with pytest.raises(LookupError, match="does not stand"):
        made["page"]()
