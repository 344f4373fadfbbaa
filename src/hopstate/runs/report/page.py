"""A page that sections are added to, rendered from `templates` with everything a reader needs.

Texts are escaped by the templates: captions, scopes, headings in order and ids of their own stand there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopstate.runs.report.charts import WIDTH, Chart, plain
from hopstate.runs.report.style import DARK, DASHES, LIGHT, SERIES

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: plain(value) if type(value) is str else value,
    )


class Page:
    """A page; only what is added appears.

    Args:
        title: of the page.
        intro: a sentence or two below the title.
    """

    def __init__(self, title: str, intro: str) -> None:
        self.title, self.intro = title, intro
        self.blocks: list[dict[str, Any]] = []
        self._numbers = count(1)

    def _add(self, kind: str, **content: Any) -> None:
        self.blocks.append({"kind": kind, "id": f"{kind}-{next(self._numbers)}", **content})

    def section(self, heading: str, about: str = "") -> None:
        self._add("section", heading=heading)
        if about:
            self.paragraph(about)

    def subsection(self, heading: str) -> None:
        """Begin a part of a section."""
        self._add("subsection", heading=heading)

    def verdict(self, words: str) -> None:
        """Add what the page says first, larger than a paragraph."""
        self._add("verdict", words=words)

    def paragraph(self, words: str) -> None:
        self._add("paragraph", words=words)

    def table(
        self,
        caption: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        words: int = 1,
        unbroken: Sequence[str] = (),
        marks: Mapping[int, str] | None = None,
    ) -> None:
        """Add a table without the columns in which no row says anything.

        Args:
            caption: above it.
            columns: their names.
            rows: cells by column; the first names the row.
            words: so many columns, the first ones, hold words; the others numbers.
            unbroken: columns of words whose cells stay on one line where there is room to scroll.
            marks: of rows by number, "best" or "floor".
        """
        kept = [i for i in range(len(columns)) if i == 0 or any(row[i] for row in rows)]
        kinds = ["n" if i >= words else "w" if columns[i] in unbroken else "" for i in kept]
        named = [{"name": columns[i], "kind": kind} for i, kind in zip(kept, kinds, strict=True)]
        marks = marks or {}
        cells = [{"cells": [row[i] for i in kept], "mark": marks.get(n, "")} for n, row in enumerate(rows)]
        self._add("table", caption=caption, columns=named, rows=cells)

    def figures(self, made: Sequence[Chart]) -> None:
        """Add charts side by side where there is room."""
        if made:
            self._add("figures", charts=made)

    def key(self, names: Sequence[str]) -> None:
        """Add the key to the lines of charts."""
        series = [{"name": name, "colour": i % SERIES, "dash": DASHES[i % len(DASHES)]} for i, name in enumerate(names)]
        self._add("key", series=series)

    def html(self, footer: str) -> str:
        contents = [block for block in self.blocks if block["kind"] == "section"]
        template = _templates().get_template("page.html")
        return template.render(
            page=self, contents=contents, footer=footer, light=LIGHT, dark=DARK, series=SERIES, width=WIDTH
        )
