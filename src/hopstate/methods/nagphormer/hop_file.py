"""Hop averages of a graph whose tokens do not fit in memory, written to one file of a row a node.

Features are averaged a block of them at a time, so that a hop of the block and the one before it are in memory. Hops
that are done go to a file without a name, one stretch a hop, and are put side by side at the end: written there at once
they would touch all of the tokens' file with every block. That file is read and written past the page cache.

Ranks of torchrun on one machine each own some rows: of a hop they fill those alone, in memory that all of them see, and
wait for each other before the next. A row is summed in the same order whoever does it, so that the bits are those of
one process.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from hopstate.data.graph import Graph
from hopstate.io.block_file import BlockFile, aligned, past_cache, whole_pages
from hopstate.io.files import named_errors, reserve_array, reserve_room
from hopstate.io.leftovers import at_work, beside
from hopstate.io.scratch import let_go
from hopstate.ops.propagate import hop_rows, hop_scale
from hopstate.training.ranks import Ranks

WINDOW = 64 << 20  # bytes of tokens that are put together, or of features that are read, at a time
TILE = 16  # features of a cache line: blocks are of so many, or some times so many, where there is room
EVEN = 1024  # rows whose float32 are whole pages, however many columns
BUFFERS = 2  # hops of a block in memory: what is averaged, and what comes of it


@dataclass(frozen=True, eq=False)
class HopFile:
    """What is written, and by whom.

    Args:
        graph: whose in-edges are averaged over.
        parts: (N, F_i) columns of hop 0, side by side.
        num_hops: K.
        columns: features of a block, at most.
        ranks: of whom each does its rows.
    """

    graph: Graph
    parts: Sequence[np.ndarray]
    num_hops: int
    columns: int
    ranks: Ranks

    @property
    def shape(self) -> tuple[int, int, int]:
        """N, K + 1, F."""
        return self.graph.num_nodes, self.num_hops + 1, sum(part.shape[1] for part in self.parts)

    @property
    def blocks(self) -> list[slice]:
        """Features of each block: as even as may be, whole cache lines where there is room for one."""
        width = self.shape[2]
        even = -(-width // -(-width // self.columns))
        whole = min(-(-even // TILE), self.columns // TILE) * TILE
        step = whole or even
        return [slice(first, min(first + step, width)) for first in range(0, width, step)]

    @property
    def rows(self) -> slice:
        """Rows of this rank, of about as much work as those of the others."""
        indptr, size = self.graph.incoming.indptr, self.ranks.size
        done = indptr + np.arange(len(indptr))
        cuts = np.searchsorted(done, [done[-1] * rank // size for rank in range(size)] + [done[-1]])
        return slice(int(cuts[self.ranks.rank]), int(cuts[self.ranks.rank + 1]))

    def write(self, path: Path) -> None:
        """Write the tokens as a .npy file; a rank that is not the first takes its path from that.

        Raises:
            StorageError: the disk has not enough room, or cannot be written to.
            RanksError: another rank has ended.
        """
        n, widths = self.shape[0], [one.stop - one.start for one in self.blocks]
        path, start = self.ranks.told(lambda: (path, reserve_array(path, self.shape)))
        spare = whole_pages(4 * n * max(widths) * BUFFERS)
        with self._scratch(path, spare + self.num_hops * sum(map(self._stretch, widths))) as file:
            waiting = BlockFile(file, direct=self.ranks.size == 1 and past_cache(file))
            buffers = self._buffers(file, (BUFFERS, n, max(widths)))
            at = spare
            for block, width in zip(self.blocks, widths, strict=True):
                self._block(waiting, at, buffers, block)
                at += self.num_hops * self._stretch(width)
            del buffers
            self._join(waiting, spare, path, start)
        self.ranks.wait()

    def _stretch(self, width: int) -> int:
        """Return the bytes of a hop of some columns in the file where it waits."""
        return whole_pages(4 * self.shape[0] * width)

    @contextlib.contextmanager
    def _scratch(self, path: Path, size: int) -> Iterator[IO[bytes]]:
        """Yield a file of so many bytes beside path, which all ranks have open, and which goes in the end."""
        with contextlib.ExitStack() as ends:
            with named_errors(path, f"make room for {size:,} bytes of hops that wait beside"):
                if self.ranks.size == 1:
                    file: IO[bytes] = ends.enter_context(tempfile.TemporaryFile(dir=path.parent, buffering=0))
                    reserve_room(file, size)
                else:
                    file = self._shared(path, size, ends)
            yield file

    def _shared(self, path: Path, size: int, ends: contextlib.ExitStack) -> IO[bytes]:
        """Return a file that rank 0 makes, open."""
        if self.ranks.first:
            name = beside(path, "part")
            ends.enter_context(at_work(name))
            ends.callback(name.unlink, missing_ok=True)
            with name.open("xb") as made:
                reserve_room(made, size)
        name = self.ranks.told(lambda: name)
        file = ends.enter_context(name.open("r+b", buffering=0))
        self.ranks.wait()
        return file

    def _buffers(self, file: IO[bytes], shape: tuple[int, int, int]) -> np.ndarray:
        """Return what holds two hops of a block, from a page on: in memory, or where all ranks see it."""
        if self.ranks.size > 1:
            return np.memmap(file, np.float32, "r+", 0, shape).view(np.ndarray)
        return aligned(4 * int(np.prod(shape))).view(np.float32).reshape(shape)

    def _block(self, file: BlockFile, at: int, buffers: np.ndarray, block: slice) -> None:
        """Average one block of features; hops 1..K go to the file at `at`, one after the other."""
        into, own, width = self.graph.incoming, self.rows, block.stop - block.start
        scale = hop_scale(into.indptr, into.weight)
        before, after = buffers[0, :, :width], buffers[1, :, :width]
        for some in _windows(own, 4 * self.shape[2]):
            before[some] = self._first(some, block)
        self.ranks.wait()
        for hop in range(self.num_hops):
            hop_rows(into.indptr, into.indices, before, after, scale, into.weight, own)
            for some in _windows(own, 4 * width, EVEN):
                file.put(after[some], at + hop * self._stretch(width) + 4 * width * some.start)
            self.ranks.wait()
            before, after = after, before

    def _first(self, rows: slice, block: slice) -> np.ndarray:
        """Return some columns of some rows of hop 0."""
        out = np.empty((rows.stop - rows.start, block.stop - block.start), np.float32)
        at = 0
        for part in self.parts:
            a, b = max(block.start, at), min(block.stop, at + part.shape[1])
            if a < b:
                out[:, a - block.start : b - block.start] = part[rows, a - at : b - at]
                let_go(part)
            at += part.shape[1]
        return out

    def _join(self, file: BlockFile, spare: int, path: Path, start: int) -> None:
        """Put the hops of this rank's rows side by side in the file of tokens."""
        _, hops, width = self.shape
        with path.open("r+b", buffering=0) as made:
            tokens = BlockFile(made, direct=False)
            for some in _windows(self.rows, 4 * hops * width):
                out, at = np.empty((some.stop - some.start, hops, width), np.float32), spare
                out[:, 0] = self._first(some, slice(0, width))
                for block in self.blocks:
                    own = block.stop - block.start
                    for hop in range(1, hops):
                        out[:, hop, block] = file.taken((len(out), own), at + 4 * own * some.start)
                        at += self._stretch(own)
                tokens.put(out, start + 4 * hops * width * some.start)


def _windows(rows: slice, size: int, even: int = 1) -> Iterator[slice]:
    """Yield rows of `size` bytes each in stretches of `WINDOW` bytes, of a multiple of `even` rows but for the last."""
    step = max(1, WINDOW // max(1, size) // even) * even
    for first in range(rows.start, rows.stop, step):
        yield slice(first, min(first + step, rows.stop))


__all__ = ["HopFile"]
