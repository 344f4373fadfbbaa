"""Links of pages outside the site, and generated pages."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "src").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's titles."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}


def broken(page: Path) -> list[str]:
    """Return the links of a page to files or anchors that do not exist; links to other sites are ignored."""
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    found = []
    for link in LINK.findall(text):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            found.append(link)
    return found


def test_links_of_pages_outside_the_site_exist(tmp_path: Path) -> None:
    assert len(PAGES) > 5
    assert {page.relative_to(ROOT).as_posix(): links for page in PAGES if (links := broken(page))} == {}
    page = tmp_path / "page.md"
    page.write_text("# One\n[a](page.md#one) [b](page.md#two) [c](nowhere.md) `[d](code.md)` [e](https://x.org)\n")
    assert broken(page) == ["page.md#two", "nowhere.md"]


@pytest.mark.slow
def test_the_generated_page_is_current() -> None:
    """`make made` writes it."""
    made = runpy.run_path(str(DOCS / "made" / "paper_to_code.py"))
    assert (DOCS / "paper-to-code.md").read_text(encoding="utf-8") == made["page"]()


@pytest.mark.slow
def test_generated_drawings_are_current() -> None:
    for name, draw in runpy.run_path(str(DOCS / "made" / "drawings.py"))["DRAWINGS"].items():
        assert (DOCS / "images" / name).read_text(encoding="utf-8") == draw(), name
