"""An hour's fuzz of the readers: `make fuzz`, or `python tests/hostile/fuzz.py --seconds 3600 --out FOLDER [READER...]`.

atheris is guided by coverage of the readers; half of the mutations are its own, of bytes, and half know the format:
cells of tables, arrays and their headers, keys of JSON and of safetensors, columns of Parquet. Every input must end as
in `test_hostile.py`: a named error, or an object that keeps its invariants (`sound.py`). Other inputs, and those above
SECONDS or MEMORY, are stored in the folder with a description, one per place in the code.

A parent restarts the fuzzing process if it dies or hangs. `--again FILE...` runs findings again.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import io
import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "src")]
SECONDS, MEMORY, HUNG = 10.0, 1 << 30, 60.0  # of one input: CPU time, bytes beyond those before; of a silent process


@dataclass(frozen=True)
class Reader:
    """A fuzz target: a file and its reader.

    Args:
        name: of the reader.
        target: the file that changes.
        read: reads it, the folder being the present one; returns a record or anything.
        same: how a record differs from what the file's bytes say, or nothing.
    """

    name: str
    target: str
    read: Callable[[], Any]
    same: Callable[[bytes, Any], str] = lambda data, record: ""


def readers() -> list[Reader]:
    """Return all targets; good files are in the current folder."""
    from yaml import YAMLError

    from hopstate.data import stream_checkpoint
    from hopstate.data.readers.read_events import read_events
    from hopstate.data.readers.read_graph import read_graph
    from hopstate.data.readers.tu import read_tu
    from hopstate.data.stream_checkpoint import load_stream_state
    from hopstate.errors import ConfigError
    from hopstate.io.tensors import Archive, load_npy
    from hopstate.methods import get_method
    from hopstate.methods.config import config_from, load_yaml
    from hopstate.runs.load import load_run
    from hopstate.runs.report import read_run
    from hopstate.runs.reproduce import read_lines
    from hopstate.runs.saved_run import SavedRun
    from hopstate.sampling.negatives import Negatives
    from hopstate.training.checkpoint import load_checkpoint
    from hostile import sound

    stream_checkpoint.with_checksum = dict  # it would reject every change
    found = []

    def add(name: str, target: str, read: Callable[[], Any], same: Callable[[bytes, Any], str] | None = None) -> None:
        found.append(Reader(name, target, read, *([same] if same else [])))

    def wider(path: str) -> Callable[[], Any]:
        return lambda: read_graph(path, undirected=False)

    def opened() -> None:
        with load_run("run-mlp", "h.npz"):
            pass

    def query_state() -> Any:
        past = load_stream_state("run-memory/state")
        store, nodes = past.store(), np.arange(min(past.num_nodes, 1000))
        when = np.full(len(nodes), 1e9)
        store.last(nodes, when, 4)
        past.memories(nodes)
        past.events()
        return past

    def archive() -> None:
        with Archive("h.npz") as arrays:
            for key in arrays:
                arrays[key]

    def given() -> Any:
        try:
            loaded = load_yaml(Path("settings.yaml").read_text("utf-8", "replace"))
        except (YAMLError, RecursionError) as error:  # the command line's parser names these
            raise ConfigError(f"settings.yaml: {error}") from None
        return config_from(get_method("mlp"), {"data": "x", **loaded}) if isinstance(loaded, dict) else None

    def settings() -> Any:
        return SavedRun.open("run-mlp").config()

    same = sound.same_events
    for name in ("events.csv", "events.tsv", "events.parquet", "snap.txt", "packed.csv.gz"):
        add(f"events-{name}", name, lambda name=name: read_events(name), same if ".csv" in name else None)
    add("jodie", "jodie.csv", lambda: read_events("jodie.csv"))
    add("tgb", "tgbl-wiki-v2.zip", lambda: read_events("tgbl-wiki-v2.zip"))
    for name in ("ml_x.csv", "ml_x.npy", "ml_x_node.npy"):
        add(f"dyglib-{name}", name, lambda: read_events("ml_x.csv"))
    for name in ("events.json", "src.npy", "t.npy", "edge_attr.npy"):
        add(f"stream-{name}", f"stream/{name}", lambda: read_events("stream"))
    add("x", "x.npy", lambda: read_events("events.csv", features="x.npy"))
    for name in ("h.npz", "g.npz", "data.pt"):
        add(f"graph-{name}", name, wider(name))
    add("edges", "edges.csv", wider("edges.csv"), sound.same_edges)
    add("edges-parquet", "edges.parquet", wider("edges.parquet"))
    for name in ("features.csv", "labels.csv"):
        add(name, name, lambda: read_graph("edges.csv", features="features.csv", labels="labels.csv"))
    for name in ("graph.json", "indptr.npy", "indices.npy", "x.npy", "y.npy", "mask_train.npy"):
        add(f"folder-{name}", f"graph/{name}", lambda: read_graph("graph"))
    add("tu", "TU.txt", lambda: read_tu("TU.txt"))
    add("tu-fold", "10fold/TU-test_idx-1.txt", lambda: read_tu("TU.txt"))
    add("npy", "x.npy", lambda: load_npy("x.npy"))
    add("archive", "h.npz", archive)
    add("run-weights", "run-mlp/model.safetensors", opened)
    add(
        "run-checkpoint",
        "run-mlp/checkpoint.safetensors",
        lambda: load_checkpoint(Path("run-mlp/checkpoint.safetensors")),
    )
    add("run-config", "run-mlp/config.json", settings)
    add("run-data", "run-mlp/data.json", lambda: SavedRun.open("run-mlp").facts)
    for name in ("config.json", "result.json", "environment.json", "metrics.jsonl"):
        add(f"page-{name}", f"run-mlp/{name}", lambda: read_run(Path("run-mlp")))
    add("results", "results.jsonl", lambda: read_lines("results.jsonl"))
    add("settings", "settings.yaml", given)
    add("state", "run-memory/state/live.json", query_state)
    add("state-events", "run-memory/state/events.safetensors", query_state)
    stream = read_events("events.csv")
    add(
        "negatives",
        "run-memory/negatives/test_random.npz",
        lambda: Negatives.load("run-memory/negatives/test_random.npz", stream),
    )
    return found


# ---- changes that know a format --------------------------------------------------------------------------------
CELLS = ["", " ", "nan", "NaN", "inf", "-inf", "-1", "0", "007", "1e3", "+5", " 5 ", "0x10", "True", '"5"', '"a,b"', "1.5",
         "5.0", "9007199254740993", "18446744073709551615", "1,000", "2024-01-01", "2024-01-01T00:00:00Z", "NaT", "é", "# a",
         "=1+1", "a" * 300, "1_000", "٣", '"', "'", "null", "None", "1e400", "1e-400", "9" * 400, "\ufeff", "\u2028", "-0"]  # fmt: skip
VALUES = [None, True, -1, 0, 3, 1.5, 10**30, -(2**63), 1e308, float("nan"), float("inf"), "", "x", "a\0b", [], {}, [1], ["a"],
          {"a": 1}, [[]], "9" * 30, "evil:M", "../x", "\ud800"]  # fmt: skip


def _text(data: bytes, rng: random.Random) -> bytes:
    lines = data.decode("utf-8", "replace").split("\n")
    cut = next((c for c in (",", "\t", " ") if c in lines[0]), ",")
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(lines))
        how = rng.randrange(9)
        cells = lines[at].split(cut)
        place = rng.randrange(len(cells))
        if how < 4:
            cells[place] = rng.choice(CELLS)
        elif how == 4:
            cells.insert(place, rng.choice(CELLS))
        elif how == 5 and len(cells) > 1:
            del cells[place]
        elif how == 6:
            lines.insert(rng.randrange(len(lines)), lines[0])
        elif how == 7:
            cells = [*cells, ""]
        else:
            lines.insert(at, rng.choice(["", "# note", lines[at], "\r", "x" * 1000]))
            continue
        lines[at] = cut.join(cells)
    end = rng.choice(("\n", "\n", "\n", "\r\n", "\r"))
    return end.join(lines).encode("utf-8", "surrogatepass")


def _array(array: np.ndarray, rng: random.Random) -> np.ndarray:
    how = rng.randrange(9)
    if how == 0:
        return array.astype(
            rng.choice(["<f4", ">f8", "<i8", ">i4", "<u8", "<f2", "<c16", "|b1", "<U5", "M8[s]"]), copy=True
        )
    if how == 1 and array.size:
        array = np.array(array)
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice([-1, 0, 1, 127]) if array.dtype.kind in "iub" else 0
    elif how == 2 and array.dtype.kind == "f" and array.size:
        array = np.array(array)
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice([np.nan, np.inf, -1e38])
    elif how == 3:
        return array[: rng.randrange(len(array) + 1)] if array.ndim else array
    elif how == 4:
        return array[None]
    elif how == 5:
        return array.reshape(-1)
    elif how == 6:
        return np.asfortranarray(array)
    elif how == 7:
        return np.concatenate([array, array]) if array.ndim else array
    elif array.size and array.dtype.kind in "iu":
        array = np.array(array, np.int64)
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice([-(2**63), 2**62, 10**6, 12, 80])
    return array


def _npy(data: bytes, rng: random.Random) -> bytes:
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
        assert max(array.size, array.nbytes, 600 * array.dtype.itemsize) < 1 << 16
    except Exception:
        array = np.arange(6.0).reshape(3, 2)
    if rng.random() < 0.3:
        shape = tuple(rng.choice([0, 1, 3, 10**12, -1, 2**31]) for _ in range(rng.randrange(4)))
        head = repr(
            {
                "descr": rng.choice(["<f4", "|O", "<i8", "|S0", "<U9999999"]),
                "fortran_order": rng.random() < 0.5,
                "shape": shape,
            }
        )
        text = head.encode() + b"\n"
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + array.tobytes()
    out = io.BytesIO()
    np.save(out, _array(array, rng))
    return out.getvalue()


def _npz(data: bytes, rng: random.Random) -> bytes:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = dict(archive)
        assert all(max(one.size, one.nbytes, 600 * one.dtype.itemsize) < 1 << 16 for one in arrays.values())
    except Exception:
        return data[: rng.randrange(len(data) + 1)]
    key = rng.choice(sorted(arrays))
    if rng.random() < 0.15:
        arrays.pop(key)
    elif arrays[key].dtype == np.uint8 and rng.random() < 0.7:
        arrays[key] = np.frombuffer(_json(arrays[key].tobytes(), rng), np.uint8)
    else:
        arrays[key] = _array(arrays[key], rng)
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def _tree(value: Any, rng: random.Random) -> Any:
    if isinstance(value, (dict, list)) and value and rng.random() < 0.85:
        key = rng.choice(sorted(value)) if isinstance(value, dict) else rng.randrange(len(value))
        made = dict(value) if isinstance(value, dict) else list(value)
        if rng.random() < 0.15:
            del made[key]
        else:
            made[key] = _tree(value[key], rng)
        return made
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.4:
        return value + rng.choice([-1, 1, 7, 10**6, -value, 2**40])
    return rng.choice(VALUES)


def _json(data: bytes, rng: random.Random) -> bytes:
    try:
        lines = (
            [json.loads(line) for line in data.splitlines() if line.strip()]
            if data[:1] == b"{" and b"}\n{" in data
            else None
        )
        tree = json.loads(data) if lines is None else lines
    except Exception:
        return rng.choice([b"{}", b"[]", b"null", b'{"a": 1, "a": 2}', b"[" * 3000, data[: len(data) // 2]])
    made = _tree(tree, rng)
    if lines is not None and isinstance(made, list):
        return b"".join(json.dumps(line).encode() + b"\n" for line in made)
    return json.dumps(made).encode()


def _tensors(data: bytes, rng: random.Random) -> bytes:
    try:
        size = struct.unpack("<Q", data[:8])[0]
        head, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    except Exception:
        return data
    if rng.random() < 0.9:  # without a checksum
        head.get("__metadata__", {}).pop("crc32", None)
    names = [name for name in head if name != "__metadata__"]
    how = rng.randrange(6)
    if how == 0 or not names:
        note = head.get("__metadata__") or {"record": "{}"}
        key = rng.choice(sorted(note))
        note[key] = (
            _json(str(note[key]).encode(), rng).decode() if rng.random() < 0.8 else rng.choice(["", "x", "null"])
        )
        head["__metadata__"] = note
    elif how == 1:
        entry = head[rng.choice(names)]
        entry["data_offsets"] = rng.choice(
            [[0, 2**62], [8, 4], [-1, 3], [0, 0], head[rng.choice(names)]["data_offsets"]]
        )
    elif how == 2:
        entry = head[rng.choice(names)]
        entry["shape"] = rng.choice([[2**40], [-1], [], [1, *entry["shape"]], entry["shape"][::-1], [0]])
    elif how == 3:
        entry = head[rng.choice(names)]
        entry["dtype"] = rng.choice(["F32", "F64", "I64", "I32", "BOOL", "F16", "U8", "X9"])
    elif how == 4:
        head[rng.choice(["evil", "model/evil", "a/b/c", "/"])] = head.pop(rng.choice(names))
    elif body:
        spot = rng.randrange(0, max(1, len(body) - 8))
        put = rng.choice(
            [struct.pack("<d", np.nan), struct.pack("<q", -5), struct.pack("<q", 2**50), struct.pack("<q", 9)]
        )
        body = body[: spot // 8 * 8] + put + body[spot // 8 * 8 + 8 :]
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + body


def _parquet(data: bytes, rng: random.Random) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(data))
        name = rng.choice(table.column_names)
        column = table[name]
        if rng.random() < 0.25 and table.schema.metadata and b"hopstate" in table.schema.metadata:
            note = _json(table.schema.metadata[b"hopstate"], rng)
            table = table.replace_schema_metadata({b"hopstate": note})
        else:
            kind = rng.choice([pa.string(), pa.float64(), pa.int64(), pa.uint64(), pa.decimal128(30, 2), pa.timestamp("ns", "UTC"),
                               pa.date32(), pa.bool_(), pa.binary(), pa.duration("s"), pa.large_string(), None])  # fmt: skip
            values = column.to_pylist()
            if kind is None:
                made: Any = pa.array([[value] for value in values])
            elif rng.random() < 0.4:
                values[rng.randrange(len(values))] = None
                made = pa.array(values)
            else:
                made = column.cast(kind, safe=False)
            table = table.set_column(table.column_names.index(name), name, made)
        out = io.BytesIO()
        pq.write_table(table, out)
        return out.getvalue()
    except Exception:
        return data[: rng.randrange(len(data) + 1)]


def _zip(data: bytes, rng: random.Random) -> bytes:
    import zipfile

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except Exception:
        return data
    name = rng.choice(sorted(members))
    members[name] = (
        _text(members[name], rng) if name.endswith(".csv") else members[name][: rng.randrange(len(members[name]) + 1)]
    )
    if rng.random() < 0.2:
        members[rng.choice(["../evil.csv", "tgbl-wiki_edgelist.csv", "x/tgbl-x_edgelist_v2.csv", "a"])] = members.pop(
            name
        )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for key, value in members.items():
            archive.writestr(key, value)
    return out.getvalue()


def _gz(data: bytes, rng: random.Random) -> bytes:
    import gzip

    try:
        return gzip.compress(_text(gzip.decompress(data), rng))
    except Exception:
        return data


OF = {".csv": _text, ".tsv": _text, ".txt": _text, ".yaml": _text, ".gz": _gz, ".npy": _npy, ".npz": _npz, ".json": _json,
      ".jsonl": _json, ".safetensors": _tensors, ".parquet": _parquet, ".zip": _zip, ".pt": _zip}  # fmt: skip


# ---- one input -------------------------------------------------------------------------------------------------
class Late(BaseException):
    """An input took more than SECONDS."""


class Fuzz:
    """Runs inputs and stores failures."""

    def __init__(self, out: Path, names: list[str]) -> None:
        self.out = out
        self.readers = [reader for reader in readers() if not names or any(name in reader.name for name in names)]
        self.good = {reader.name: Path(reader.target).read_bytes() for reader in self.readers}
        self.count = {reader.name: [0, 0] for reader in self.readers}  # rejected, read
        self.seen: set[str] = set()
        self.reported = 0.0
        signal.signal(signal.SIGVTALRM, self._late)

    def _late(self, *_: object) -> None:
        raise Late

    def one(self, data: bytes) -> None:
        """Run an input: a byte for the reader, then the file."""
        if not data:
            return
        reader = self.readers[data[0] % len(self.readers)]
        self.run(reader, data[1:])
        if time.monotonic() - self.reported > 2:
            self.report()

    def run(self, reader: Reader, data: bytes) -> None:
        """Read bytes with a reader, and store them on failure."""
        from hopstate.errors import HopstateError
        from hostile import sound

        path = Path(reader.target)
        path.write_bytes(data)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        story = ""
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                record = reader.read()
            self.count[reader.name][1] += 1
            broken = sound.wrong(record) or reader.same(data, record)
            story = f"wrong: {broken.split(chr(39))[0]}\n{broken}" if broken else ""
        except HopstateError as error:
            self.count[reader.name][0] += 1
            if "does not fit into memory" in str(error):
                story = f"memory\n{error}"
            elif not any(name in str(error) for name in (path.name, path.parent.name, path.stem)):
                story = (
                    ""
                    if reader.name == "settings"
                    else f"no file named: {type(error).__name__} {_place(error)}\n{error}"
                )
        except Late:
            story = "late\n" + traceback.format_exc()
        except Exception as error:
            story = f"{type(error).__name__} {_place(error)}\n" + traceback.format_exc()
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            path.write_bytes(self.good[reader.name])
        if (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 > MEMORY:
            story = story or "memory\nthe process grew by more than MEMORY"
        if story:
            self.keep(reader, data, story)

    def keep(self, reader: Reader, data: bytes, story: str) -> None:
        """Store an input, the first one per first line of its description."""
        key = f"{reader.name}: {story.splitlines()[0]}"
        if key in self.seen:
            return
        self.seen.add(key)
        number = len(list(self.out.glob("*.story")))
        name = f"{number:04d}-{reader.name}"
        (self.out / f"{name}.bin").write_bytes(data)
        (self.out / f"{name}.story").write_text(f"{key}\n{story}\n", "utf-8", "backslashreplace")

    def report(self) -> None:
        """Write the counts."""
        self.reported = time.monotonic()
        (self.out / f"count-{os.getpid()}.json").write_text(json.dumps(self.count))


def _place(error: BaseException) -> str:
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if "hopstate" in f.filename and "hostile" not in Path(f.filename).parts
    ]
    own = frames or traceback.extract_tb(error.__traceback__)
    return f"{Path(own[-1].filename).name}:{own[-1].name}" if own else ""


# ---- processes -------------------------------------------------------------------------------------------------
def work(good: Path, out: Path, names: list[str], seconds: float, seed: int) -> None:
    """Fuzz until the time is over; the current folder becomes a copy of the good files."""
    import atheris

    inner = ["hopstate.data.kernels", "hopstate.ops", "hopstate.layers", "hopstate.sampling"]
    with atheris.instrument_imports(include=["hopstate.data", "hopstate.io", "hopstate.runs.data", "hopstate.methods.config",
                                             "hopstate.training.run_folder", "hopstate.training.checkpoint", "hopstate.runs.report",
                                             "hopstate.runs.reproduce"], exclude=inner):  # fmt: skip
        pass
    place = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    shutil.copytree(good, place, dirs_exist_ok=True)
    os.chdir(place)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + 4 * MEMORY, size + 4 * MEMORY))
    faulthandler.register(signal.SIGUSR1)  # kill -USR1 prints the stack
    fuzz, begin = Fuzz(out, names), time.monotonic()
    for file in out.glob("*.story"):
        fuzz.seen.add(file.read_text("utf-8").splitlines()[0])
    seeds = place / ".corpus"
    seeds.mkdir()
    for i, reader in enumerate(fuzz.readers):
        (seeds / str(i)).write_bytes(bytes([i]) + fuzz.good[reader.name])

    def one(data: bytes) -> None:
        if time.monotonic() - begin > seconds:
            fuzz.report()
            shutil.rmtree(place, ignore_errors=True)
            os._exit(0)
        fuzz.one(data)

    def change(data: bytes, size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        number = rng.randrange(len(fuzz.readers))  # uniform, not by the preference of libFuzzer
        reader = fuzz.readers[number]
        body = data[1:] if data and data[0] == number and rng.random() < 0.5 else fuzz.good[reader.name]
        for _ in range(rng.choice((1, 1, 2, 4))):
            if rng.random() < 0.6:
                with contextlib.suppress(Exception):  # its input may no longer have the format
                    body = OF[Path(reader.target).suffix](body, rng)
            else:
                body = atheris.Mutate(body, max(len(body) + 64, 64))
        return (bytes([number]) + body)[:size]

    options = ["fuzz", str(seeds), f"-seed={seed}", "-timeout=1000000", "-rss_limit_mb=0", "-malloc_limit_mb=0",
               "-max_len=200000", "-len_control=0", f"-artifact_prefix={out}/crash-", "-verbosity=0", "-print_final_stats=0"]  # fmt: skip
    atheris.Setup(options, one, custom_mutator=change)
    atheris.Fuzz()


def prepare(good: Path) -> None:
    """Write the good files: data of every format, and two runs."""
    from hopstate.cli.main import main
    from hostile import seeds, special

    seeds.make_data(good)
    special.extra(good)
    os.chdir(good)
    for name in ("run-mlp", "run-memory"):
        assert main([*seeds.RUNS[name], f"--out={name}"]) == 0
    assert main(["stream", "run-memory", "--data=later.csv", "--ignore-state", "--out=scores.csv"]) == 0
    state = good / "run-memory" / "state"
    events = next(state.glob("events-*.safetensors"))
    head = json.loads((state / "live.json").read_text().replace(events.name, "events.safetensors"))
    events.rename(state / "events.safetensors")
    (state / "live.json").write_text(json.dumps(head))


def watch(options: argparse.Namespace) -> None:
    """Keep a fuzzing process running until the time is over; print its findings."""
    out = Path(options.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    good = out / "good"
    if not good.is_dir():
        good.mkdir()
        subprocess.run([sys.executable, __file__, "--prepare", str(good)], check=True)
    end, number = time.monotonic() + options.seconds, 0
    while (left := end - time.monotonic()) > 5:
        number += 1
        command = [
            sys.executable,
            __file__,
            "--work",
            "--out",
            str(out),
            "--seconds",
            str(left),
            "--seed",
            str(options.seed + number),
        ]
        with (out / "log.txt").open("ab") as log:
            child = subprocess.Popen([*command, *options.readers], stdout=log, stderr=log)
        while child.poll() is None:
            time.sleep(1)
            count = out / f"count-{child.pid}.json"
            silent = time.time() - count.stat().st_mtime if count.exists() else 0
            if silent > HUNG:
                child.send_signal(signal.SIGUSR1)
                time.sleep(1)
                child.kill()
                (out / f"hang-{child.pid}.story").write_text(f"process {child.pid} was silent for {silent:.0f} s\n")
        if child.returncode:
            print(f"process {child.pid} ended with {child.returncode}; see {out}")
    total: dict[str, list[int]] = {}
    for file in out.glob("count-*.json"):
        for name, counts in json.loads(file.read_text()).items():
            total[name] = [a + b for a, b in zip(total.get(name, [0, 0]), counts)]
    for name, (refused, read) in total.items():
        print(f"{name:36} {refused + read:9,} inputs, {refused:9,} refused, {read:9,} read")
    print(f"{sum(map(sum, total.values())):,} inputs; {len(list(out.glob('*.story')))} finds in {out}")


def again(files: list[str], good: Path) -> None:
    """Run findings again, and print how they end."""
    files = [str(Path(file).resolve()) for file in files]
    place = Path(tempfile.mkdtemp(prefix="fuzz-"))
    shutil.copytree(good, place, dirs_exist_ok=True)
    os.chdir(place)
    found = place / "found"
    found.mkdir()
    fuzz = Fuzz(found, [])
    for file in files:
        name = Path(file).stem.split("-", 1)[1]
        reader = next(reader for reader in fuzz.readers if reader.name == name)
        before = len(fuzz.seen)
        fuzz.run(reader, Path(file).read_bytes())
        print(f"{Path(file).name}: {'as before' if len(fuzz.seen) > before else 'mended'}")
    for file in sorted(found.glob("*.story")):
        print(file.read_text())
    shutil.rmtree(place)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", help="parts of names; all without")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--out", default="fuzz")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", nargs="+", default=[], metavar="FILE")
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "HOPSTATE_TYPECHECK": "0"}
    os.environ.setdefault("HOPSTATE_DATA", str(Path(options.out).resolve() / "cache"))
    if options.prepare:
        prepare(Path(options.prepare))
    elif options.work:
        out = Path(options.out)
        work(out / "good", out, options.readers, options.seconds, options.seed)
    elif options.again:
        again(options.again, Path(options.out).resolve() / "good")
    else:
        watch(options)


if __name__ == "__main__":
    main()
