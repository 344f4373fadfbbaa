"""HTML pieces with everything a reader needs: escaped text, unique ids, captions, scopes, headings in order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from itertools import count

from hopstate.runs.report.style import CSS


def text(value: object) -> str:
    """Return value as text that cannot be read as markup, in elements and in attributes."""
    plain = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "\N{REPLACEMENT CHARACTER}", str(value))
    return escape(plain, quote=True)


class Page:
    """A page that sections are added to; only what is added appears.

    Args:
        title: of the page.
        intro: a sentence or two below the title.
    """

    def __init__(self, title: str, intro: str) -> None:
        self.title, self.intro = title, intro
        self._body: list[str] = []
        self._contents: list[tuple[str, str]] = []
        self._numbers = count(1)

    def new_id(self, kind: str) -> str:
        """Return an id that no other element has."""
        return f"{kind}-{next(self._numbers)}"

    def section(self, heading: str, about: str = "") -> None:
        """Begin a section."""
        name = self.new_id("section")
        self._contents.append((name, heading))
        self._body.append(f'<h2 id="{name}">{text(heading)}</h2>')
        if about:
            self.paragraph(about)

    def subsection(self, heading: str) -> None:
        """Begin a part of a section."""
        self._body.append(f"<h3>{text(heading)}</h3>")

    def paragraph(self, words: str) -> None:
        """Add a paragraph."""
        self._body.append(f'<p class="quiet">{text(words)}</p>')

    def table(
        self,
        caption: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        words: int = 1,
        unbroken: Sequence[str] = (),
    ) -> None:
        """Add a table without the columns in which no row says anything.

        Its roles are written out because browsers forget them where the style makes blocks of rows.

        Args:
            caption: above it.
            columns: their names.
            rows: cells by column; the first names the row.
            words: so many columns, the first ones, hold words; the others numbers.
            unbroken: columns of words whose cells stay on one line where there is room to scroll.
        """
        name = self.new_id("table")
        kept = [i for i in range(len(columns)) if i == 0 or any(row[i] for row in rows)]
        kinds = ["n" if i >= words else "w" if columns[i] in unbroken else "" for i in kept]
        columns = [columns[i] for i in kept]
        head = "".join(
            f'<th scope="col" role="columnheader"{_class(kind)}>{text(c)}</th>'
            for c, kind in zip(columns, kinds, strict=True)
        )
        body = "".join(_row(columns, [row[i] for i in kept], kinds) for row in rows)
        self._body.append(
            f'<div class="scroll" role="region" aria-labelledby="{name}" tabindex="0"><table role="table">'
            f'<caption id="{name}">{text(caption)}</caption><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
            f'<tbody role="rowgroup">{body}</tbody></table></div>'
        )

    def figures(self, made: Sequence[str]) -> None:
        """Add charts side by side where there is room."""
        if made:
            self._body.append(f'<div class="charts">{"".join(made)}</div>')

    def add(self, piece: str) -> None:
        """Add HTML that is ready."""
        self._body.append(piece)

    def html(self, footer: str) -> str:
        """Return the whole page."""
        links = "".join(f'<li><a href="#{name}">{text(words)}</a></li>' for name, words in self._contents)
        nav = f'<nav aria-label="Contents"><ul>{links}</ul></nav>' if links else ""
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{text(self.title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n"
            '<a class="skip" href="#content">To the content</a>\n'
            f'<header><h1>{text(self.title)}</h1><p class="quiet">{text(self.intro)}</p>{nav}</header>\n'
            f'<main id="content" tabindex="-1">\n{chr(10).join(self._body)}\n</main>\n'
            f"<footer>{text(footer)}</footer>\n</body>\n</html>\n"
        )


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _row(columns: Sequence[str], row: Sequence[str], kinds: Sequence[str]) -> str:
    """Return a row; on narrow screens rows become blocks whose cells are labelled by their columns."""
    cells = "".join(
        f'<td role="cell" data-label="{text(columns[i])}"{_class(kinds[i])}>{text(c)}</td>'
        for i, c in enumerate(row[1:], 1)
    )
    return f'<tr role="row"><th scope="row" role="rowheader">{text(row[0])}</th>{cells}</tr>'
