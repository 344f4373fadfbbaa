"""The pieces of a file brought to the folder of work, some at a time; each is whole there or absent.

Reading is one after the other; what is made of a piece (codes of ids, times, numbers) is made by several threads, as
arrow, numpy and compiled loops let go of the interpreter there. Codes go by which piece asked first; what is written of
them in the end does not, so that any number of threads gives the same store.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hopstate.data.prepare.layout import Columns, Layout
from hopstate.data.prepare.numbering import PLAIN, Numbering
from hopstate.data.prepare.pieces import Piece, pieces_of
from hopstate.data.prepare.staging import Staged, staged
from hopstate.io.files import replace_file, write_text


@dataclass(frozen=True)
class PieceFiles:
    """Where the pieces of one file lie.

    Args:
        folder: of work.
        number: of the file.
    """

    folder: Path
    number: int

    def path(self, place: int, kind: str) -> Path:
        """Return the path of a piece's "events", "bad" rows or facts ("json", which comes last)."""
        return self.folder / f"{self.number:05d}-{place:06d}.{kind}"


def stage(
    layout: Layout,
    columns: Columns,
    size: int,
    files: PieceFiles,
    numbering: Numbering,
    threads: int,
    say: Callable[[str], None],
) -> int:
    """Bring every piece of a file that is not there to the folder of work; return how many pieces the file has.

    Args:
        layout, columns: how the file lies, and which columns are taken.
        size: rows of a piece.
        files: where pieces go.
        numbering: gives ids their codes.
        threads: that pieces are made by; at most so many and one more are held.
        say: takes lines of progress.

    Raises:
        FormatError, DataError: the file cannot be read; pieces before that stay.
    """
    count = 0
    waiting: deque[Future[None]] = deque()

    def absent() -> Iterator[tuple[int, Piece]]:
        nonlocal count
        for place, piece in enumerate(pieces_of(layout, columns, size)):
            count += 1
            if not files.path(place, "json").is_file():
                yield place, piece

    def one(place: int, piece: Piece) -> None:
        _save(files, place, staged(layout, columns, piece, numbering), layout)
        say(f"{layout.path}: {int(piece.rows[-1]) + 1 if len(piece.rows) else 0:,} rows read")

    with ThreadPoolExecutor(threads, thread_name_prefix="stage") as pool:
        try:
            for place, piece in absent():
                waiting.append(pool.submit(one, place, piece))
                if len(waiting) >= threads:
                    waiting.popleft().result()
            while waiting:
                waiting.popleft().result()
        finally:
            for left in waiting:
                left.cancel()
    return count


def _save(files: PieceFiles, place: int, piece: Staged, layout: Layout) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    events = pa.table(piece.columns)
    replace_file(files.path(place, "events"), lambda p: pq.write_table(events, p, **PLAIN))
    facts = {**piece.facts, "file": files.number, "place": place, "bad": len(piece.bad)}
    if piece.bad:
        name = os.fspath(layout.path.name)
        write_text(files.path(place, "bad"), "".join(json.dumps([name, *one]) + "\n" for one in piece.bad))
    write_text(files.path(place, "json"), json.dumps(facts))
