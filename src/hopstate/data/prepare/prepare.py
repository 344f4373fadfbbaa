"""`prepare`: a table of events or edges of any size becomes a memory-mapped store, as if it was read in memory.

Work lies in a folder `work` within the store until it is done. Each piece there is whole or absent, so that a run that
was killed, or whose disk was full, goes on where it stopped. `events.json` (of edges `graph.json`), with check sums of
the arrays, comes last.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hopstate.data.column_facts import BLOCK
from hopstate.data.event_store import VERSION, WORK
from hopstate.data.prepare.engine import Engine
from hopstate.data.prepare.engines import check_engine, open_engine
from hopstate.data.prepare.graph import write_graph
from hopstate.data.prepare.layout import Columns, Layout, files_of, layouts
from hopstate.data.prepare.made import (
    BAD_ROWS,
    MARKERS,
    Prepared,
    no_empty_folder,
    nothing_half,
    prepared_of,
    refuse_other,
)
from hopstate.data.prepare.nodes import NodeTables, read_nodes
from hopstate.data.prepare.numbering import Numbering, logged
from hopstate.data.prepare.settle import settle, settle_labels
from hopstate.data.prepare.stage import PieceFiles, stage
from hopstate.data.prepare.write import Writing, write_store
from hopstate.data.readers.node_sets import ONE, TWO, shared_ids
from hopstate.data.readers.tables import stem_of
from hopstate.data.store import VERSION as GRAPH_VERSION
from hopstate.errors import ConfigError, StorageError
from hopstate.io.files import make_folder, remove_stale, write_text
from hopstate.io.lock import locked
from hopstate.io.opening import exists, parse_bytes, read_json
from hopstate.io.output import write_table
from hopstate.io.tensors import load_npy

LEAST = 512 << 20  # bytes of memory
_WORK_VERSION = 2  # of what lies in the folder of work
_OWN = 256 << 20  # bytes that the process needs beside its engine
Say = Callable[[str], None]


def prepare(
    source: str | Path,
    out: str | Path,
    *,
    kind: Literal["events", "edges"] = "events",
    engine: str = "duckdb",
    memory: int | str = "2GiB",
    threads: int | None = None,
    piece_rows: int | None = None,
    say: Say | None = None,
    **read: Any,
) -> Prepared:
    """Make a store of a table; `read_events` or `read_graph` maps it into memory, and so does --data of every command.

    Arrays are those that `read_events` or `read_graph` gives for the same table; rows without ids, time or numbers of
    features, which it would refuse, are written to bad_rows.csv in the store.

    Args:
        source: a file or folder of CSV or Parquet, files following each other in the order of their names.
        out: the store, a folder. What an earlier call with the same source left there unfinished is gone on with.
        kind: what a row is.
        engine: of `hopstate.data.prepare.engines.ENGINES`.
        memory: most bytes of memory in use, at least 512MiB; of Spark's own, its settings say.
        threads: that bring pieces to the folder of work, and of DuckDB; by default one a core.
        piece_rows: rows in work at a time; by default by memory.
        say: takes lines of progress.
        read: of `hopstate.data.prepare.layout.OPTIONS`, as `read_events` has them; for edges of `EDGE_OPTIONS`, as
            `read_graph` has them. Tables of nodes are read in memory, features in a .npy file are not.

    Raises:
        ConfigError: less memory, an unknown engine or option.
        MissingExtraError: the engine is not installed.
        MissingFileError, FormatError, DataError: the source cannot be read; files that differ are named.
        StorageError: the store is of another source, or the disk is full; what is done is kept.
        BusyError: another process prepares it.
    """
    budget = parse_bytes(memory)
    if budget < LEAST:
        raise ConfigError(f"--memory {memory} is too little; prepare needs at least 512MiB")
    check_engine(engine)
    out = Path(out)
    if kind not in MARKERS:
        raise ConfigError(f"a row is one of {', '.join(MARKERS)}; got {kind!r}")
    nodes = read_nodes(read) if kind == "edges" else None
    refuse_other(out, kind)
    found, columns, facts = _look(source, read, kind)
    try:
        with no_empty_folder(out), locked(out, "a store"):
            rows = piece_rows or min(1 << 19, max(1 << 14, budget >> 12))
            work = _Work(out, found, columns, read, rows, say, kind)
            if not work.finished():
                with nothing_half(out):
                    work.stage(threads, budget)
                    with open_engine(engine, work.folder, budget - _OWN, threads) as at:
                        work.finish(at, facts, read.get("time_unit") or "", nodes)
            return work.result()
    except OSError as error:
        if isinstance(error, StorageError) or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise StorageError(
            f"could not write {out}: {error}; free some space there and run the same command again: what is done "
            "is kept"
        ) from error


def _look(source: str | Path, read: Mapping[str, Any], kind: str) -> tuple[list[Layout], Columns, dict[str, Any]]:
    """Return the layouts of the files, their columns, and the name and source of the store."""
    files = files_of(source)
    facts = {"name": stem_of(files[0] if len(files) == 1 else Path(source)), "source": str(source)}
    return *layouts(files, read, kind == "edges"), facts


class _Work:
    """The folder of work of one store."""

    def __init__(
        self,
        out: Path,
        found: list[Layout],
        columns: Columns,
        read: Mapping[str, Any],
        rows: int,
        say: Say | None,
        kind: str,
    ) -> None:
        self.edges, self.marker = kind == "edges", out / MARKERS[kind]
        self.read = {key: value for key, value in read.items() if value is not None}
        self.out, self.folder, self.layouts, self.columns = out, out / WORK, found, columns
        self._say = say or (lambda text: None)
        beside = [Path(read[name]) for name in ("features", "labels") if self.edges and read.get(name)]
        stats = [(str(path.resolve()), path.stat()) for path in (*(one.path for one in found), *beside)]
        self.plan: dict[str, Any] = {
            "files": [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats],
            "columns": [list(v) if isinstance(v, tuple) else v for v in dataclasses.astuple(columns)[:5]],
            "read": self.read,
        }
        self.plan |= {"kind": kind} if self.edges else {}
        plan = self.folder / "plan.json"
        if exists(self.marker):
            made = read_json(self.marker).get("prepared")
            if not isinstance(made, dict) or made.get("plan") != self.plan:
                raise StorageError(f"{out} holds {kind} of another source; choose another folder")
        elif plan.is_file():
            kept = read_json(plan)
            rows = kept.pop("piece_rows", rows)
            if kept.pop("work", 1) != _WORK_VERSION:
                raise StorageError(f"{out} is an unfinished store that another hopstate began; delete it")
            if kept != self.plan:
                raise StorageError(
                    f"{out} is the unfinished store of another source, of files that have changed since, or of other "
                    "options; delete it, or choose another folder"
                )
            remove_stale(self.folder)
        else:
            make_folder(self.folder)
            write_text(plan, json.dumps({**self.plan, "piece_rows": rows, "work": _WORK_VERSION}))
        self.rows = rows

    def finished(self) -> bool:
        """Return whether the store is whole; what is left of the work on it goes."""
        whole = exists(self.marker)
        if whole:
            shutil.rmtree(self.folder, ignore_errors=True)
        return whole

    def stage(self, threads: int | None, budget: int) -> None:
        """Bring every piece that is not there to the folder of work."""
        numbering = Numbering(self.folder, budget * 2 // 5)
        for number, layout in enumerate(self.layouts):
            done = self.folder / f"{number:05d}.json"
            if not done.is_file():
                files, many = PieceFiles(self.folder, number), threads or os.cpu_count() or 1
                count = stage(layout, self.columns, self.rows, files, numbering, many, self._say)
                write_text(done, json.dumps({"pieces": count}))

    def _piece(self, file: int, place: int, kind: str) -> Path:
        return PieceFiles(self.folder, file).path(place, kind)

    def finish(self, engine: Engine, facts: dict[str, Any], unit: str, nodes: NodeTables | None) -> None:
        """Write the store of the staged pieces."""
        import pandas as pd

        counts = [read_json(self.folder / f"{n:05d}.json")["pieces"] for n in range(len(self.layouts))]
        names = [(n, place) for n, count in enumerate(counts) for place in range(count)]
        pieces = [read_json(self._piece(*name, "json")) for name in names]
        paths = [layout.path for layout in self.layouts]
        settled = settle(pieces, paths, unit)
        some = [(name, fact) for name, fact in zip(names, pieces) if fact["count"]]
        label = self.columns.label
        labels = None if label is None else settle_labels([fact for _, fact in some], label, paths[0])
        bad = sum(fact["bad"] for fact in pieces)
        if bad:
            texts = [self._piece(*name, "bad").read_text("utf-8") for name, fact in zip(names, pieces) if fact["bad"]]
            rows = [json.loads(line) for text in texts for line in text.splitlines()]
            write_table(pd.DataFrame(rows, columns=["file", "line", "reason", "cells"]), self.out / BAD_ROWS)
        writing = Writing(
            self.out, self.folder, [self._piece(*name, "events") for name, _ in some],
            logged(self.folder), [fact for _, fact in some],
            self.columns, settled, labels, self._say, facts["source"],
        )  # fmt: skip
        if nodes is not None:
            arrays, own = write_graph(writing, engine, nodes, self._build())
        else:
            arrays, own = write_store(writing, engine)
            self._check_sets(arrays, own["num_nodes"], text=settled.text)
        notes = [
            *self.columns.notes,
            *own.pop("notes", ()),
            *([f"{bad:,} rows were left out; {BAD_ROWS} in the store tells which"] if bad else []),
        ]
        meta = {"version": GRAPH_VERSION if self.edges else VERSION, **facts, **own, "notes": notes}
        if not self.edges:
            meta |= {"time_unit": settled.unit, "first_id": 0}
            meta |= {"texts": [] if own["columns"] else None, "dates": [settled.zone] if settled.zone else None}
        meta |= {"arrays": list(arrays), "checksums": arrays, "prepared": {"plan": self.plan, "bad": bad}}
        write_text(self.marker, json.dumps(meta, indent=1))
        self.finished()

    def _check_sets(self, arrays: Iterable[str], num_nodes: int, *, text: bool) -> None:
        """Raise DataError, and leave nothing of the store, where ids of two sets of nodes are the same."""
        if self.columns.sets == ONE or (text and self.columns.sets != TWO):
            return
        sent = np.zeros(num_nodes, bool)
        src, dst = (load_npy(self.out / f"{name}.npy", mmap=True) for name in ("src", "dst"))
        for start in range(0, len(src), BLOCK):
            sent[src[start : start + BLOCK]] = True
        shared = any(sent[dst[start : start + BLOCK]].any() for start in range(0, len(dst), BLOCK))
        if shared:
            for name in arrays:
                (self.out / f"{name}.npy").unlink()
            shutil.rmtree(self.folder)
            source, target = self.columns.source, self.columns.target
            raise shared_ids(f"{self.layouts[0].path}: columns {source!r}, {target!r}", "the same ids are in both")

    def _build(self) -> dict[str, Any]:
        return {"undirected": True, "duplicates": "drop", "self_loops": "keep"} | {
            key: self.read[key] for key in ("undirected", "duplicates", "self_loops") if key in self.read
        }

    def result(self) -> Prepared:
        """Return what the store holds."""
        return prepared_of(self.out, self.edges, read_json(self.marker))
