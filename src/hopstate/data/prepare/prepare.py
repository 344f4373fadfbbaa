"""`prepare`: a table of events or edges of any size becomes a memory-mapped store, as if it was read in memory.

Steps lie in the folder `work` of the store: the files of the source as typed Parquet (`source`), then the nodes of
their ids (`engine`). Each file there is whole or absent, so that a run that was killed continues with the first absent
one. The arrays (`store`) follow, and last `events.json` or `graph.json`, which makes the store valid.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import json
import operator
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hopstate.data.dates import UNITS
from hopstate.data.labels import missing_note, missing_word_error
from hopstate.data.prepare.engines import (
    Engine,
    adjacency,
    by_time,
    check_engine,
    distinct_ids,
    open_engine,
    with_keys,
    with_nodes,
)
from hopstate.data.prepare.source import files_of, open_source, stage
from hopstate.data.prepare.writer import Labels, Time, Writer
from hopstate.data.preprocessing import FeatureTable
from hopstate.data.readers.edge_list import EdgeTableOptions
from hopstate.data.readers.node_tables import NodeTables, PlacedNodes
from hopstate.data.readers.relations import MAX_RELATIONS, check_num_types, names_of_types
from hopstate.data.readers.roles import ONE, TWO, shared_ids_error
from hopstate.data.readers.tables import EXACT, INTEGER, LEADING_ZEROS, MISSING, NO_LABEL, stem_of
from hopstate.data.readers.times import calendar_unit, unit_of_dates
from hopstate.data.store import EVENTS_FILE, GRAPH_FILE, VERSION, WORK, id_arrays, read_meta, table_arrays, table_facts
from hopstate.data.vocabulary import as_texts
from hopstate.errors import ConfigError, DataError, FormatError, HopstateError, StorageError
from hopstate.io.files import locked, make_folder, remove_stale, replace_file, write_text
from hopstate.io.opening import exists, parse_bytes, read_json
from hopstate.io.output import write_table
from hopstate.io.tensors import load_npy

Fact = dict[str, Any]


# ---- tables of nodes --------------------------------------------------------------------------------------------
def _node_tables(read: Mapping[str, Any]) -> NodeTables | None:
    if all(read.get(name) is None for name in ("features", "labels", "num_nodes")):
        return None
    known = {field.name for field in dataclasses.fields(EdgeTableOptions)}
    options = {key: value for key, value in read.items() if key in known and value is not None}
    return NodeTables.read(EdgeTableOptions(**options), specs={})


def _save_nodes(writer: Writer, nodes: NodeTables, placed: PlacedNodes) -> Fact:
    """Write what nodes carry; return the facts of the store on it."""
    fields = nodes.fields(placed)
    table: FeatureTable | None = fields.get("table")
    for name, mask in fields.get("masks", {}).items():
        writer.save(f"mask_{name}", mask)
    for name, array in (id_arrays(placed.ids) | {name: fields.get(name) for name in ("x", "y", "node_type")}).items():
        writer.save(name, array)
    classes = fields.get("class_names")
    facts: Fact = {"class_names": None if classes is None else list(map(str, classes))}
    facts["node_type_names"] = list(nodes.type_names)
    if table is not None:
        for name, array in table_arrays("table", table).items():
            writer.save(name, array)
        facts["tables"] = {"table": table_facts(table)}
    return facts


BAD_ROWS = "bad_rows.csv"
_MARKERS = {"events": EVENTS_FILE, "edges": GRAPH_FILE}  # written last
_MIN_MEMORY = 512 << 20  # bytes of memory
_PROCESS_MEMORY = 256 << 20  # bytes of this process without its engine
_WORK_VERSION = 4
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_MAX_CLASSES = 10_000  # most texts of a column of labels
_UNIT_GAP_RATIO = 100  # times later than every earlier file: no file that follows them


@dataclass(frozen=True)
class Prepared:
    """A finished store.

    Args:
        path: the store.
        events, nodes: their numbers; for edges, the stored ones.
        bad: rows that were left out.
        bad_rows: the file with them, None if there are none.
        notes: sentences on how the table was read.
    """

    path: Path
    events: int
    nodes: int
    bad: int
    bad_rows: Path | None
    notes: tuple[str, ...] = ()


def prepare(
    source: str | Path,
    out: str | Path,
    *,
    kind: Literal["events", "edges"] = "events",
    engine: str = "duckdb",
    memory: int | str = "2GiB",
    threads: int | None = None,
    batch_rows: int | None = None,
    say: Callable[[str], None] | None = None,
    **read: Any,
) -> Prepared:
    """Convert a table to a memory-mapped dataset, which `read_events`, `read_graph` and --data of every command read.

    The arrays equal those that `read_events` or `read_graph` returns for the same table. Rows without ids, time or
    numeric features are written to bad_rows.csv in the folder, instead of being an error.

    Args:
        source: a file or folder of CSV or Parquet files, which are read in the order of their names.
        out: the folder to write. The same call continues an unfinished one.
        kind: what a row is, "events" or "edges".
        engine: "duckdb" or "spark".
        memory: memory limit, at least 512MiB. Spark has its own settings.
        threads: threads of DuckDB. Default: one per core.
        batch_rows: rows that are read at a time. Default: by the memory limit.
        say: function that gets lines of progress.
        read: options of `read_events` (`hopstate.data.prepare.source.OPTIONS`), or of `read_graph` for edges
            (`EDGE_OPTIONS`). Tables of nodes are read in memory; features in a .npy file are memory-mapped.

    Raises:
        ConfigError: less memory, an unknown engine or an unknown option.
        MissingExtraError: the engine is not installed.
        MissingFileError, FormatError, DataError: the source cannot be read, or its files differ.
        StorageError: the folder is of another source, or the disk is full. Finished steps are kept.
        BusyError: another process prepares the folder.

    Example:
        >>> events.to_csv("events.csv", index=False)
        >>> store = hopstate.prepare("events.csv", "store")
        >>> store.events, store.nodes
        (120, 6)
    """
    budget = parse_bytes(memory)
    if budget < _MIN_MEMORY:
        raise ConfigError(f"--memory {memory} is too little; prepare needs at least 512MiB")
    check_engine(engine)
    if kind not in _MARKERS:
        raise ConfigError(f"a row is one of {', '.join(_MARKERS)}; got {kind!r}")
    out = Path(out)
    nodes = _node_tables(read) if kind == "edges" else None
    _check_out(out, kind)
    paths = files_of(source)
    files, columns = open_source(paths, read, edges=kind == "edges")
    name = stem_of(paths[0] if len(paths) == 1 else Path(source))
    rows = batch_rows or min(1 << 19, max(1 << 14, budget >> 12))
    try:
        with locked(out, "a store"), _rollback_on_error(out):
            job = _Job(
                out, kind, files, columns, read, {"name": name, "source": str(source)}, say or (lambda text: None)
            )
            if not exists(job.marker):
                job.stage(rows)
                with open_engine(engine, job.work, budget - _PROCESS_MEMORY, threads) as opened:
                    job.finish(opened, nodes)
            shutil.rmtree(job.work, ignore_errors=True)
            return _finished_store(out, kind)
    except OSError as error:
        if isinstance(error, StorageError) or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise StorageError(
            f"could not write {out}: {error}; free some space there and run the same command again: finished steps "
            "are kept"
        ) from error


class _Job:
    """The steps from files to a store."""

    def __init__(
        self, out: Path, kind: str, files: Any, columns: Any, read: Mapping[str, Any], names: Fact, say: Any
    ) -> None:
        self.out, self.work, self.marker = out, out / WORK, out / _MARKERS[kind]
        self.edges, self.files, self.columns, self.names, self.say = kind == "edges", files, columns, names, say
        self.read = {key: value for key, value in read.items() if value is not None}
        used = [Path(self.read[name]) for name in ("features", "labels") if self.edges and self.read.get(name)]
        stats = [(str(path.resolve()), path.stat()) for path in (*(file.path for file in files), *used)]
        known = dataclasses.astuple(columns)[:5]
        self.plan: Fact = json.loads(json.dumps({
            "kind": kind, "work": _WORK_VERSION, "columns": known, "read": self.read,
            "files": [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats],
        }, default=str))  # fmt: skip
        plan = self.work / "plan.json"
        if exists(self.marker):
            made = read_json(self.marker).get("prepared")
            if not isinstance(made, dict) or made.get("plan") != self.plan:
                raise StorageError(f"{out} has {kind} of another source; choose another folder")
        elif plan.is_file():
            if read_json(plan) != self.plan:
                raise StorageError(
                    f"{out} is the unfinished store of another source or version, of files that have changed since, or "
                    "of other options; delete it, or choose another folder"
                )
            remove_stale(self.work)
        else:
            make_folder(self.work)
            write_text(plan, json.dumps(self.plan))

    def _path(self, number: int, ending: str) -> Path:
        return self.work / f"rows-{number:05d}.{ending}"

    # ---- steps ----
    def stage(self, rows: int) -> None:
        """Bring the files to the folder of work."""
        start = 0
        for number, file in enumerate(self.files):
            facts = self._path(number, "json")
            if not facts.is_file():
                stage(file, self.columns, start, self._path(number, "parquet"), rows, self.say)
            start += read_json(facts)["rows"]

    def finish(self, engine: Engine, nodes: Any) -> None:
        """Write the arrays of the staged rows, then what makes the store valid."""
        facts = [read_json(self._path(number, "json")) for number in range(len(self.files))]
        bad = self._bad_rows(facts)
        some = [fact for fact in facts if fact["count"]]
        if not some:
            raise self._no_rows(facts)
        staged = engine.read([self._path(n, "parquet") for n, fact in enumerate(facts) if fact["count"]])
        found = self._aggregate(engine, staged)
        whole = self._ids_are_integers(found, staged)
        text = not all(whole)
        rows = with_keys(staged, whole, text, engine.number)
        table = self._nodes(engine, rows, text)
        writer = Writer(self.out, len(self.columns.features), found.get("exact", True), set())
        count = sum(fact["count"] for fact in some)
        if self.edges:
            own = self._graph(engine, rows, table, writer, count, nodes)
        else:
            own = self._events(engine, rows, table, writer, some, found)
            self._check_sets(own["num_nodes"], text=text)
        notes = [*self.columns.notes, *own.pop("notes", ())]
        notes += [f"{bad:,} rows were left out; see {BAD_ROWS} in the store"] if bad else []
        typed: Fact = {"relation_names": [], "node_type_names": []}
        meta = {"version": VERSION, **self.names, "published": False, **typed, **own, "notes": notes}
        meta |= {"arrays": sorted(writer.names), "prepared": {"plan": self.plan, "bad": bad}}
        write_text(self.marker, json.dumps(meta, indent=1))

    def _nodes(self, engine: Engine, rows: Any, text: bool) -> Path:
        path, kind = self.work / "nodes.parquet", pa.string() if text else pa.int64()
        schema = pa.schema([("id", kind), ("node", pa.int64())])

        def write(part: Path) -> None:
            count = 0
            with pq.ParquetWriter(part, schema, use_dictionary=False) as out:
                for batch in engine.batches(distinct_ids(rows)):
                    node = pa.array(np.arange(count, count + len(batch)))
                    out.write_batch(pa.record_batch([batch.column(0).cast(kind), node], schema=schema))
                    count += len(batch)

        if not path.is_file():
            self.say("numbering the ids")
            replace_file(path, write)
        return path

    def _events(self, engine: Engine, rows: Any, table: Path, writer: Any, facts: Sequence[Fact], found: Fact) -> Fact:
        time, labels = self._time(facts, found), self._labels(engine, rows, facts, found)
        if rows.t.type().is_string():
            rows = rows.mutate(t=engine.number(rows.t) if time.dtype.kind == "i" else rows.t.cast("float64"))
        if labels is not None and labels.classes is None and rows.label.type().is_string():
            rows = rows.mutate(label=rows.label.cast("float64" if labels.dtype.kind == "f" else "int64"))
        count, numbered = self._count_ids(table)
        relations = self._relations(engine, rows)
        if not numbered:
            writer.node_ids(table)
            rows = with_nodes(rows, engine.read([table]))
        if labels is None and self.columns.label:
            rows = rows.drop("label")
        self.say("sorting the events")
        writer.events(engine.batches(by_time(rows)), sum(fact["count"] for fact in facts), time, labels, relations)
        names = None if labels is None or labels.names is None else list(labels.names)
        told = "" if labels is None else missing_note(found["label_missing"], found["rows"])
        return {
            "num_nodes": count, "class_names": names, "time_unit": time.unit, "first_id": 0, "dates": time.zone,
            "two_sets": False, "tables": self._edge_tables(), "relation_names": relations,
            "notes": [f"labels: column {self.columns.label!r}{told}"] if told else [],
        }  # fmt: skip

    def _relations(self, engine: Engine, rows: Any) -> list[str]:
        """Return the names of the relations of all rows, sorted as `read_events` sorts them."""
        if self.columns.relation is None:
            return []
        words = rows.relation.value_counts(name="count").limit(MAX_RELATIONS + 1)
        names = [row["relation"] for batch in engine.batches(words) for row in batch.to_pylist()]
        check_num_types(names, f"{self.files[0].path}: column {self.columns.relation!r}")
        return list(names_of_types([np.array(names, object)]))

    def _edge_tables(self) -> Fact:
        return {"edge_table": {"columns": list(self.columns.features), "texts": []}} if self.columns.features else {}

    def _graph(self, engine: Engine, rows: Any, table: Path, writer: Any, edges: int, nodes: Any) -> Fact:
        notes: list[str] = []
        if nodes is None:
            count, numbered = self._count_ids(table)
            own: Fact = {"class_names": None}
            if not numbered:
                writer.node_ids(table)
        else:
            ids = pq.read_table(table, columns=["id"])["id"]
            met = as_texts(ids) if pa.types.is_string(ids.type) else ids.to_numpy()
            placed = nodes.place([met], [self.names["source"]], None)
            count, numbered, table = placed.count, False, table.with_name("placed.parquet")
            pq.write_table(pa.table({"id": ids, "node": placed.rows[0]}), table)
            own = _save_nodes(writer, nodes, placed)
            notes += (*nodes.notes, *placed.notes)
        if not numbered:
            rows = with_nodes(rows, engine.read([table]))
        build = {"undirected": True, "duplicates": "drop", "self_loops": "keep"}
        build |= {key: self.read[key] for key in build.keys() & self.read.keys()}
        self.say("sorting the edges")
        loops, undirected = build["self_loops"] == "keep", bool(build["undirected"])
        batches = engine.batches(adjacency(rows, undirected=undirected, loops=loops))
        unique = build["duplicates"] == "drop"
        seen, kept = writer.graph(batches, edges * (2 if undirected else 1), count, unique=unique)
        notes += ["every edge is stored in both directions (--read.undirected false keeps one)"] if undirected else []
        notes += [f"{seen - kept:,} of {seen:,} stored edges were duplicates and left out"] if kept < seen else []
        own["tables"] = own.get("tables", {}) | self._edge_tables()
        return own | {"num_nodes": count, "notes": notes}

    def _count_ids(self, table: Path) -> tuple[int, bool]:
        """Return the number of nodes, and whether their ids are 0, 1, 2, ..."""
        with pq.ParquetFile(table) as file:
            count = file.metadata.num_rows
            if str(file.schema_arrow.field("id").type) != "int64":
                return count, False
            last = pc.max(file.read_row_group(file.num_row_groups - 1, ["id"])["id"]).as_py()
            first = pc.min(file.read_row_group(0, ["id"])["id"]).as_py()
        if first < 0:
            raise DataError(f"{self.names['source']}: negative id {first}; ids are at least 0, or texts")
        return count, last == count - 1

    # ---- what the files hold together ----
    def _bad_rows(self, facts: Sequence[Fact]) -> int:
        import pandas as pd

        bad = sum(fact["bad"] for fact in facts)
        if bad:
            texts = (self._path(n, "bad").read_text("utf-8") for n, fact in enumerate(facts) if fact["bad"])
            rows = [json.loads(line) for text in texts for line in text.splitlines()]
            write_table(pd.DataFrame(rows, columns=["file", "line", "reason", "cells"]), self.out / BAD_ROWS)
        return bad

    def _no_rows(self, facts: Sequence[Fact]) -> DataError:
        what = "ids" if self.edges else "ids and a time"
        first = next((fact["first_bad"] for fact in facts if fact["first_bad"]), None)
        why = "" if first is None else "; the first, {0} line {1} ({3:.80}): {2}".format(*first)
        return DataError(f"{self.files[0].path}: no row has {what}{why}")

    def _aggregate(self, engine: Engine, rows: Any) -> Fact:
        """Return statistics of all staged rows, from one query."""
        asked: dict[str, Any] = {}
        for side in ("src", "dst"):
            ids = rows[side]
            if not ids.type().is_string():
                asked[f"{side}_negative"] = ids.min()
                continue
            if self.files[0].text is None:  # texts of a typed file are ids as they are
                continue
            whole, zeros = ids.re_search(f"^{INTEGER}$"), ids.re_search(f"^{LEADING_ZEROS}")
            odd = ids.isin(MISSING) | ids.re_search("^[#%]")
            asked[f"{side}_whole"] = (whole & ~zeros).sum()
            asked[f"{side}_zeros"] = (whole & zeros).sum()
            asked[f"{side}_odd"] = (~whole & odd).sum()
            asked[f"{side}_fractions"] = (~whole & ~odd & ids.re_search(_NUMBER)).sum()
            asked[f"{side}_negative"] = ids.max(where=ids.re_search("^-0*[1-9]"))
        features = [rows[f"f{place}"] for place in range(len(self.columns.features))]
        if features:
            same = [feature.cast("float32").cast("float64") == feature for feature in features]
            asked["exact"] = functools.reduce(operator.and_, same).all()
        for name in {"t", "label"} & set(rows.columns):
            cells = rows[name]
            asked[f"{name}_missing"] = cells.isnull().sum()
            if cells.type().is_string():
                for kind, form in (("integer", "^[+-]?[0-9]+$"), ("integral", f"^{INTEGER}$"), ("number", _NUMBER)):
                    asked[f"{name}_{kind}"] = (cells.isnull() | cells.re_search(form)).all()
        if "label" in rows.columns:
            is_text = rows.label.type().is_string()
            if is_text:
                asked["label_zeros"] = rows.label.re_search(f"^{LEADING_ZEROS}").sum()
                asked["label_words"] = rows.label.isin(NO_LABEL).sum()
                asked["label_word"] = rows.label.max(where=rows.label.isin(NO_LABEL))
            asked["label_minus"] = (rows.label.re_search("^-1(?:[.]0*)?$") if is_text else rows.label == -1).sum()
            if rows.label.type().is_floating():
                asked["label_integral"] = (rows.label.isnull() | (rows.label == rows.label.floor())).all()
        if self.columns.dated:
            asked |= {f"t_{name}": (rows.t % size != 0).sum() for name, size in UNITS.items()}
        asked["rows"] = rows.count()
        found: Fact = next(iter(engine.batches(rows.aggregate(**asked)))).to_pylist()[0]
        return found | {f"{name}_type": str(rows[name].type()) for name in rows.columns}

    def _ids_are_integers(self, found: Fact, rows: Any) -> tuple[bool, bool]:
        """Return whether the source ids and the target ids are all integers."""
        path, whole = self.files[0].path, []
        for side in ("src", "dst"):
            if f"{side}_whole" not in found:
                whole.append(not rows[side].type().is_string())
                continue
            rest = found["rows"] - found[f"{side}_whole"] - found[f"{side}_zeros"]
            for key, what in (("odd", "missing values or remarks"), ("fractions", "fractions or exponents")):
                if found[f"{side}_whole"] and rest and rest == found[f"{side}_{key}"]:
                    raise DataError(
                        f"{path}: {rest:,} ids are {what} among whole numbers; correct or remove those rows"
                    )
            whole.append(not rest and not found[f"{side}_zeros"])
        for side, are_whole in zip(("src", "dst"), whole, strict=True):
            negative = found.get(f"{side}_negative")
            below = are_whole and negative is not None and int(float(negative)) < 0
            if below and not (self.edges and not all(whole)):  # edges then take them as texts
                raise DataError(f"{path}: negative id {negative}; ids are at least 0, or texts")
        return whole[0], whole[1]

    def _time(self, facts: Sequence[Fact], found: Fact) -> Any:
        unit, path = self.read.get("time_unit") or "", facts[0]["path"]
        if not self.columns.dated:
            most = max(max(abs(fact["least"]), abs(fact["most"])) for fact in facts)
            whole = found.get("t_integer", found["t_type"] != "float64") or (most >= EXACT and found.get("t_integral"))
            if not whole and most >= EXACT and facts[0]["text"]:
                raise DataError(
                    f"{path}: times beyond 2^53 and fractions in column {self.columns.time!r}, where float64 is "
                    "not exact. Write all times as whole numbers, or from a later start"
                )
            if not unit:
                _check_units(facts)
            return Time(np.dtype(np.int64 if whole else np.float64), unit)
        exact = next(name for name, size in UNITS.items() if size == 1 or not found[f"t_{name}"])
        unit = unit_of_dates(exact, unit, path)
        zones = {zone for fact in facts for zone in fact["zones"]}
        return Time(np.dtype(np.int64), unit, UNITS[unit], zones.pop() if len(zones) == 1 else "UTC")

    def _labels(self, engine: Engine, rows: Any, facts: Sequence[Fact], found: Fact) -> Any:
        """Return labels as `hopstate.data.labels.labels_of_events` has them; None if they are not classes."""
        column, path = self.columns.label, facts[0]["path"]
        if column is None:
            return None
        where, absent = f"{path}: column {column!r}", found["label_missing"]
        if found.get("label_words") and self.columns.unlabeled_value is None:
            raise missing_word_error(where, found["label_word"], f"{found['label_words']:,} rows")
        text = rows.label.type().is_string()
        integer = found["label_integer"] if text else not rows.label.type().is_floating()
        are_words = text and (self.files[0].text is None or found["label_zeros"])
        number = not are_words and (integer or not text or found["label_number"])
        whole = integer or found["label_integral"]
        if number and whole and found["label_minus"]:
            raise DataError(
                f"{where} has -1 in {found['label_minus']:,} rows; say --read.unlabeled_value -1 if that is 'no "
                "label', or write classes from 0 on"
            )
        if number:
            if absent and not whole:
                raise DataError(f"{where} has amounts, and none in {absent:,} rows; fill it in, or remove the rows")
            if absent == found["rows"] and text:
                return Labels(np.dtype(np.int64))
            plain = np.dtype(facts[0]["label_type"] or (np.int64 if integer else np.float64))
            return Labels(np.dtype(np.int64) if absent else plain)
        words = rows.filter(rows.label.notnull()).label.value_counts(name="count").limit(_MAX_CLASSES + 1)
        counts = {row["label"]: row["count"] for batch in engine.batches(words) for row in batch.to_pylist()}
        if len(counts) > _MAX_CLASSES:
            raise DataError(
                f"{where} has over {_MAX_CLASSES:,} different texts, which are not classes; use --read.label_column ''"
            )
        if {word.lower() for word in counts} <= {"true", "false"}:
            return Labels(np.dtype(np.int64), ("false", "true"))
        total = sum(counts.values())
        if total >= 20 and len(counts) > 0.5 * total:
            return None
        classes = tuple(sorted(counts, key=lambda word: (-counts[word], word)))
        return Labels(np.dtype(np.int64), classes, classes)

    def _check_sets(self, num_nodes: int, *, text: bool) -> None:
        """Raise DataError if ids may belong to one or two sets of nodes."""
        if self.columns.sets == ONE or (text and self.columns.sets != TWO):
            return
        sent, size = np.zeros(num_nodes, bool), 1 << 20
        src, dst = (load_npy(self.out / f"{name}.npy", mmap=True) for name in ("src", "dst"))
        for start in range(0, len(src), size):
            sent[src[start : start + size]] = True
        if any(sent[dst[start : start + size]].any() for start in range(0, len(dst), size)):
            source, target = self.columns.source, self.columns.target
            raise shared_ids_error(f"{self.files[0].path}: columns {source!r}, {target!r}", "the same ids are in both")


def _check_units(facts: Sequence[Fact]) -> None:
    some = sorted((fact for fact in facts), key=lambda fact: fact["most"])
    for at in range(1, len(some)):
        low, high = some[:at], some[at:]
        ends = low[-1]["most"], min(fact["least"] for fact in high)
        units = [calendar_unit(min(f["least"] for f in part), max(f["most"] for f in part)) for part in (low, high)]
        if ends[0] > 0 and ends[1] >= _UNIT_GAP_RATIO * ends[0] and all(units) and units[0] != units[1]:
            raise DataError(
                f"times of {high[0]['path']} look like {units[1]} since 1970 and those of {low[-1]['path']} like "
                f"{units[0]}; write all files in one unit, or give it if they are (--read.time_unit s)"
            )


# ---- the folder -------------------------------------------------------------------------------------------------
def _check_out(out: Path, kind: str) -> None:
    """Raise StorageError if a folder is neither a store of a kind, nor an unfinished one, nor empty."""
    if not out.exists() or exists(out / _MARKERS[kind]) or (out / WORK).is_dir():
        return
    if not out.is_dir():
        raise StorageError(f"{out} is a file; choose a folder for the store")
    for other, marker in _MARKERS.items():
        if exists(out / marker):
            raise StorageError(f"{out} is a store of {other}, not of {kind}; choose another folder")
    names = sorted(path.name for path in out.iterdir())
    parts = [name for name in names if name.endswith(".npy")]
    if parts:
        raise StorageError(
            f"{out} is a half-written store: it has {parts[0]}, but neither {_MARKERS[kind]}, which is written last, "
            f"nor the folder {WORK}, from which preparing continues; remove it and prepare again, or choose another one"
        )
    if names:
        raise StorageError(f"{out} exists and is not a store; choose another folder")


@contextlib.contextmanager
def _rollback_on_error(out: Path) -> Iterator[None]:
    """Remove written files if the source cannot become a store, so that the next call starts again."""
    whole = any(exists(out / marker) for marker in _MARKERS.values())
    try:
        yield
    except (DataError, FormatError, ConfigError):
        if not whole:
            shutil.rmtree(out / WORK, ignore_errors=True)
            for path in out.iterdir():
                if path.suffix == ".npy" or path.name == BAD_ROWS:
                    path.unlink()
        raise


def _finished_store(out: Path, kind: str) -> Prepared:
    """Describe a finished store; raise FormatError if it is damaged or of another version."""
    meta = read_meta(out, _MARKERS[kind])
    try:
        arrays = {name: load_npy(out / f"{name}.npy", mmap=True) for name in meta["arrays"]}
        count = len(arrays["indices" if kind == "edges" else "t"])
    except (HopstateError, KeyError) as error:
        raise FormatError(f"{out} has changed since it was written: {error}; delete and prepare it again") from None
    bad = meta["prepared"]["bad"]
    return Prepared(out, count, meta["num_nodes"], bad, out / BAD_ROWS if bad else None, tuple(meta.get("notes", ())))
