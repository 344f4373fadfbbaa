"""Special cases: each file is wrong, or odd but valid."""

from __future__ import annotations

import gzip
import json
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from hostile.corpus import COMMAND_OF, FIT, OF_RUN, RUN_FILES, Case, rewrite_json, rewrite_npz, zip_claim

EVENTS = {
    "negative-id": "src,dst,t\n-1,2,3\n",
    "fraction-id": "src,dst,t\n1.5,2,3\n2,2,4\n",
    "float-beyond-2^53": "src,dst,t\n9007199254740993.0,2,3\n9007199254740992.0,2,4\n",
    "uint64": "src,dst,t\n18446744073709551615,2,3\n1,2,4\n",
    "no-id": "src,dst,t\n,2,3\n1,2,4\n",
    "no-time": "src,dst,t\n1,2,\n1,2,4\n",
    "nan-time": "src,dst,t\n1,2,nan\n1,2,4\n",
    "inf-time": "src,dst,t\n1,2,inf\n1,2,4\n",
    "word-time": "src,dst,t\n1,2,yesterday\n1,2,4\n",
    "far-date": "src,dst,t\n1,2,9999-01-01\n1,2,2020-01-01\n",
    "stamps-with-fractions": "src,dst,t\n1,2,1704067200000000001\n1,2,1704067200000000002\n1,2,1704067200000000003.5\n",
    "end-of-int64": "src,dst,t\n1,2,3\n1,2,9223372036854775807\n",
    "1e300-time": "src,dst,t\n1,2,3\n1,2,1e300\n",
    "no-date": "src,dst,t\n1,2,2020-01-01\n1,2,NaT\n",
    "no-rows": "src,dst,t\n",
    "no-columns": "a\n1\n2\n",
    "twice-named": "src,src,t\n1,2,3\n",
    "long-line": "src,dst,t\n1,2,3,4,5\n",
    "quote": 'src,dst,t\n"1,2,3\n1,2,4\n',
    "nul": "src,dst,t\n1\0,2,3\n",
    "late-nul": "src,dst,t\n" + "1,2,3\n" * 2000 + "1\0,2,3\n",
    "one-line": "1," * 300_000,
    "long-field": "src,dst,t\n" + "a" * 200_000 + ",b,3\n",
    "bad-kind": "src,dst,t,kind\n1,2,3,add\n1,2,4,maybe\n",
    "deleted-before": "src,dst,t,kind\n1,2,3,delete\n",
}
READ = {  # text → lines of its card
    "missing-label": ("src,dst,t,label\n1,2,3,1\n1,2,4,\n", ("  labels ", "1: 1", "1 of 2 events")),
    "word-feature": ("src,dst,t,feat_0\n1,2,3,x\n", ("  columns of events ", "category of 1")),
    "nan-feature": ("src,dst,t,feat_0\n1,2,3,nan\n", ("  missing values ", "feat_0: 1")),
    "windows-lines": ("src,dst,t\r\n1,2,3\r\n2,1,4\r\n", ("  events ", "  2\n", "3 to 4")),
    "byte-mark": ("\ufeffsrc,dst,t\n1,2,3\n2,1,4\n", ("3 to 4",)),
    "comments": ("# made\n# by hand\nsrc,dst,t\n1,2,3\n2,1,4\n", ("3 to 4",)),
    "zeros-in-front": ("src,dst,t\n007,7,3\n7,007,4\n", ("  nodes ", "distinct pairs ", "  2\n", "3 to 4")),
    "script-ids": ("src,dst,t\n<script>,b,3\nb,=1+1,4\n", ("3 to 4",)),
    "large-whole-ids": ("src,dst,t\n9007199254740993,1,3\n9007199254740992,1,4\n", ("distinct pairs ", "  2\n")),
    "unsorted": ("src,dst,t\n1,2,9\n2,1,4\n", ("4 to 9",)),
}


def _write(text: str) -> Callable[[Path, np.random.Generator], None]:
    return lambda path, rng: path.write_bytes(text.encode("utf-8")) and None


def _do(change: Callable[[Path], object]) -> Callable[[Path, np.random.Generator], None]:
    return lambda path, rng: change(path) and None


def cases() -> Iterator[Case]:
    """Yield all of them."""
    yield from _tables()
    yield from _archives()
    yield from _arrays()
    yield from _sets()
    yield from _settings()
    yield from _weights()
    yield from _documents()


def _tables() -> Iterator[Case]:
    argv = ("inspect", "events.csv", "--kind", "events")
    for name, text in EVENTS.items():
        yield Case(f"events/{name}", ("events.csv",), "events.csv", _write(text), argv)
    for name, (text, card) in READ.items():
        yield Case(f"events/{name}", ("events.csv",), "events.csv", _write(text), argv, card)

    def bomb(path: Path) -> None:
        with gzip.open(path, "wb", compresslevel=9) as file:
            file.write(b"src,dst,t\n")
            for _ in range(1100):
                file.write(b"1,2,3\n" * 350_000)

    limit = ("fit", "recency", "--data=packed.csv.gz", "--read.max_bytes=1000", *FIT)
    yield Case("events/limit", ("packed.csv.gz",), "packed.csv.gz", _do(lambda path: None), limit)
    yield Case("events/latin1", ("events.csv",), "events.csv",
               _do(lambda path: path.write_bytes("src,dst,t\nJosé,b,3\n".encode("latin1"))), argv)  # fmt: skip
    for target in ("events.parquet", "edges.parquet", "packed.csv.gz"):
        kind = "graph" if target == "edges.parquet" else "events"
        yield Case(f"name/text/{target}", (target,), target, _write("src,dst,t\n1,2,3\n2,1,4\n"),
                   ("inspect", target, "--kind", kind))  # fmt: skip
    for name in ("a" * 300, "nul\0name", "~nobody-of-this-name/x.csv", "/dev/zero", "/dev/null", "/proc/self/mem", "."):
        for kind in ("events", "graph"):
            label = f"name/{kind}/{name[:20]!r}"
            yield Case(label, ("events.csv",), "events.csv", _do(lambda path: None), ("inspect", name, "--kind", kind))


def _archives() -> Iterator[Case]:
    graph = {
        "edges": {"fractions": np.array([[0, 1.5]]), "negative": np.array([[0, -1]]), "beyond": np.array([[0, 12]]),
                  "cube": np.zeros((2, 2, 2), int), "number": np.array(3), "words": np.array([["a", "b"]]),
                  "wide": np.zeros((3, 3), int), "objects": np.array([[{}, 1]], object),
                  "uint64": np.array([[0, 2**64 - 1]], np.uint64), "gone": None},
        "node_features": {"nan": np.full((12, 4), np.nan), "short": np.zeros((3, 4)), "vector": np.zeros(12),
                          "cube": np.zeros((12, 2, 2)), "number": np.array(1.0), "complex": np.zeros((12, 2), complex),
                          "none": np.zeros((12, 0)), "dates": np.zeros((12, 1), "M8[s]"), "gone": None},
        "node_labels": {"below": np.full(12, -7), "huge": np.full(12, 10**12), "short": np.zeros(3, int),
                        "cube": np.zeros((12, 1, 1)), "words": np.array(["a"] * 12), "number": np.array(1), "gone": None,
                        "none": np.zeros((12, 0), int)},
        "train_masks": {"all": np.ones((1, 12), bool), "short": np.ones((1, 5), bool), "twos": np.full((1, 12), 2),
                        "fractions": np.full((1, 12), 0.5), "cube": np.ones((1, 1, 12), bool), "empty":
                        np.zeros((1, 12), bool), "number": np.array(True)},
    }  # fmt: skip
    for key, ways in graph.items():
        for name, value in ways.items():
            change = _do(lambda path, key=key, value=value: rewrite_npz(path, **{key: value}))
            yield Case(f"npz/{key}/{name}", ("h.npz",), "h.npz", change, ("inspect", "h.npz", "--kind", "graph"))
    sparse = {
        "adj_indices": {"fractions": lambda a: a + 0.5, "beyond": lambda a: a + 100, "negative": lambda a: a - 5,
                        "square": lambda a: a[None], "long": lambda a: np.append(a, 0)},
        "adj_indptr": {"fractions": lambda a: a * 1.0, "falling": lambda a: a[::-1].copy(), "short": lambda a: a[:-2]},
        "adj_data": {"nan": lambda a: a * np.nan, "inf": lambda a: a * np.inf, "short": lambda a: a[:-1], "words":
                     lambda a: np.array(["a"] * len(a))},
        "adj_shape": {"wide": lambda a: a + [0, 3], "tall": lambda a: a + [3, 0], "huge": lambda a: a * 10**11,
                      "one": lambda a: a[:1], "fractions": lambda a: a + 0.5, "negative": lambda a: -a},
        "attr_shape": {"huge": lambda a: np.array([a[0], 10**12]), "short": lambda a: a - [2, 0]},
        "attr_data": {"nan": lambda a: a * np.nan}, "labels": {"short": lambda a: a[:3], "cube": lambda a: a[:, None, None]},
    }  # fmt: skip
    for key, changes in sparse.items():
        for name, alter in changes.items():

            def spoil(path: Path, rng: np.random.Generator, key: str = key, alter: Callable = alter) -> None:
                with np.load(path) as arrays:
                    value = alter(arrays[key])
                rewrite_npz(path, **{key: value})

            yield Case(f"csr/{key}/{name}", ("g.npz",), "g.npz", spoil, ("inspect", "g.npz", "--kind", "graph"))
    yield from _zips()


def _zips() -> Iterator[Case]:
    def encrypted(path: Path) -> None:
        data = bytearray(path.read_bytes())
        for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            start = data.find(mark)
            while start >= 0:
                data[start + at] |= 1
                start = data.find(mark, start + 4)
        path.write_bytes(data)

    def method(path: Path) -> None:
        data = bytearray(path.read_bytes())
        for mark, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
            start = data.find(mark)
            while start >= 0:
                data[start + at : start + at + 2] = struct.pack("<H", 97)
                start = data.find(mark, start + 4)
        path.write_bytes(data)

    def bomb(path: Path) -> None:
        with (
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("edges.npy", "w", force_zip64=True) as member,
        ):
            head = {"descr": "<i8", "fortran_order": False, "shape": (150_000_000, 2)}
            np.lib.format.write_array_header_1_0(member, head)
            for _ in range(240):
                member.write(bytes(10_000_000))

    ways = {"encrypted": encrypted, "method": method, "bomb": bomb, "claim-1e12": lambda p: zip_claim(p, 10**12),
            "claim-1e18": lambda p: zip_claim(p, 10**18), "claim-200": lambda p: zip_claim(p, 200)}  # fmt: skip
    for name, change in ways.items():
        yield Case(f"zip/{name}", ("plain.npz",), "plain.npz", _do(change), ("inspect", "plain.npz", "--kind", "graph"))


def _header(shape: object, descr: object = "<f4", order: object = False) -> bytes:
    text = repr({"descr": descr, "fortran_order": order, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def _arrays() -> Iterator[Case]:
    heads = {
        "1e12": _header((10**12,)), "1e18": _header((10**9, 10**9)), "negative": _header((-4, -4)), "object": _header((1,), "|O"),
        "record": _header((1,), [("a", "<f4")]), "text": b"\x93NUMPY\x01\x00\x10\x00" + b"__import__('os')", "empty-rows":
        _header((10**13, 0)), "deep": b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"(" * 9000, "axes": _header((1,) * 30),
        "version": b"\x93NUMPY\x09\x00" + bytes(100), "no-length": b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "fraction": _header((1.5,)),
        "wide-text": _header((1,), "<U1000000000"), "void": _header((1,), "|V100"), "number": _header(()) + bytes(4),
        "cube": _header((2, 2, 2)) + bytes(32), "complex": _header((12, 4), "<c8") + bytes(12 * 32),
    }  # fmt: skip
    places = {
        "x.npy": (("events.csv", "x.npy"), ("fit", "recency", "--data=events.csv", "--read.features=x.npy", *FIT)),
        "stream/src.npy": (("stream",), ("inspect", "stream", "--kind", "events")),
        "graph/indptr.npy": (("graph",), ("inspect", "graph", "--kind", "graph")),
        "graph/x.npy": (("graph",), ("inspect", "graph", "--kind", "graph")),
        "ml_x.npy": (("ml_x.csv", "ml_x.npy"), ("inspect", "ml_x.csv", "--kind", "events")),
    }
    for target, (needs, argv) in places.items():
        for name, head in heads.items():
            yield Case(f"npy/{target}/{name}", needs, target, _do(lambda p, h=head: p.write_bytes(h)), argv)
    metas = {"num_nodes": (10**15, -1, 3, "x", None), "arrays": (None, ["src"], ["../secret"], {"a": 1}, [3]), "version":
             (1, 3, None, "2"), "name": (3, None), "first_id": (-1, "x", None), "time_unit": (3,)}  # fmt: skip
    for key, values in metas.items():
        for value in (*values, ...):
            change = _do(lambda path, key=key, value=value: rewrite_json(path, **{key: value}))
            label = f"folder/{key}/{value!r}"
            yield Case(label, ("stream",), "stream/events.json", change, ("inspect", "stream", "--kind", "events"))


def _sets() -> Iterator[Case]:
    good = "2 0\n0 1 1\n0 1 0\n"
    texts = {
        "fewer": "1\n" + good * 3, "more": "9\n" + good, "fraction-label": "2\n2 0.5\n0 1 1\n0 1 0\n" + good, "fraction-neighbour":
        "2\n2 0\n0 1 0.5\n0 1 0\n" + good, "fraction-tag": "2\n2 0\n0.5 1 1\n0 1 0\n" + good, "negative-degree":
        "2\n2 0\n0 -1 1\n0 1 0\n" + good, "beyond": "2\n2 0\n0 1 7\n0 1 0\n" + good, "nan": "2\n2 nan\n0 1 1\n0 1 0\n" + good,
        "inf": "inf\n" + good, "1e300": "1e300\n" + good, "1e12-nodes": "1\n1000000000000 0\n0 0\n", "zero": "0\n", "minus": "-3\n",
        "words": "two\n" + good, "attributes": "2\n2 0\n0 1 1 0.5\n0 1 0\n" + good, "word-attribute": "2\n2 0\n0 1 1 x\n0 1 0 y\n" + good,
        "fraction-count": "1.5\n" + good * 2, "label-only": "1\n2\n0 1 1\n0 1 0\n", "short-node": "1\n2 0\n0\n0 1 0\n",
    }  # fmt: skip
    argv = ("fit", "gin-graphs", "--data=TU.txt", "--model.dim=4", *FIT)
    for name, text in texts.items():
        yield Case(f"tu/{name}", ("TU.txt",), "TU.txt", _write(text), argv)
    folds = {"overlap": "0\n1\n2\n", "beyond": "99\n", "fraction": "0.5\n", "word": "x\n", "minus": "-1\n", "again": "0\n0\n",
             "other-fold": "1\n", "1e300": "1e300\n", "digits": "9" * 5000 + "\n"}  # fmt: skip
    for name, text in folds.items():
        yield Case(f"folds/{name}", ("TU.txt", "10fold"), "10fold/TU-test_idx-1.txt", _write(text), argv)


WRONG: tuple[object, ...] = (
    None,
    [],
    {},
    "x",
    -1,
    1e300,
    10**9,
    [[]],
    "../..",
    "\ud800",
    True,
    {"class_path": "evil.M"},
)


def _settings() -> Iterator[Case]:
    keys = ("method", "data", "read", "model", "loop", "model__dim", "model__num_layers", "loop__seed", "loop__optim",
            "loop__precision", "read__format", "read__nan", "split", "split__kind")  # fmt: skip
    argv = ("evaluate", "run-mlp", "--data=h.npz")
    for key in keys:
        for i, value in enumerate((*WRONG, ...)):
            change = _do(lambda path, key=key, value=value: rewrite_json(path, **{key: value}))
            name = f"config/{key}/{i}"
            yield Case(name, ("run-mlp", "h.npz"), "run-mlp/config.json", change, argv, None)
    for key in ("evaluation__bootstrap", "evaluation__num_negatives", "num_neighbors"):
        change = _do(lambda path, key=key: rewrite_json(path, **{key: 10**12}))
        yield Case(f"count/{key}", ("run-memory", "events.csv"), "run-memory/config.json", change,
                   ("evaluate", "run-memory", "--data=events.csv"))  # fmt: skip
    for name, value in {
        "module": "evil:METHOD",
        "dotted": "evil.sub:METHOD",
        "os": "os:system",
        "path": "../evil:METHOD",
    }.items():
        for command in ("evaluate", "predict", "stream", "explain", "check-leak"):
            more = {"predict": ("--out=p.csv",), "stream": ("--data=h.npz", "--out=p.csv"), "explain":
                    ("--pair", "1,2", "--time", "9")}.get(command, ())  # fmt: skip
            change = _do(lambda path, value=value: rewrite_json(path, method=value))
            yield Case(f"foreign/{name}/{command}", ("run-mlp", "h.npz"), "run-mlp/config.json", change,
                       (command, "run-mlp", *more))  # fmt: skip
    for key in ("model", "loop", "read", "split", "batching", "data", "loop__optim", "help", "config", "print_config"):
        for i, value in enumerate(
            ("evil.Thing", {"class_path": "evil.Thing"}, {"class_path": "evil.Thing", "init_args": {}})
        ):
            change = _do(lambda path, key=key, value=value: rewrite_json(path, **{key: value}))
            yield Case(
                f"class/{key}/{i}",
                ("run-mlp", "h.npz"),
                "run-mlp/config.json",
                change,
                argv,
                None if key in ("data", "read") else (),
            )
    known = {"content_hash": (None, 3, []), "num_nodes": ("x", None), "class_names": (None, 3, [1]), "num_features": ("x",),
             "used_features": (3, {"edge_dim": "x"})}  # fmt: skip
    for key, values in known.items():
        for value in values:
            change = _do(lambda path, key=key, value=value: rewrite_json(path, **{key: value}))
            yield Case(f"data/{key}/{value!r}", ("run-mlp", "h.npz"), "run-mlp/data.json", change, argv)


def _weights() -> Iterator[Case]:
    def altered(change: Callable[[dict, dict], object]) -> Callable[[Path, np.random.Generator], None]:
        def spoil(path: Path, rng: np.random.Generator) -> None:
            from safetensors import safe_open
            from safetensors.torch import save_file

            with safe_open(path, "pt") as file:
                tensors, header = {key: file.get_tensor(key) for key in file.keys()}, dict(file.metadata())  # noqa: SIM118
            header.pop("crc32")  # without a checksum, which would reject them all
            change(tensors, header)
            save_file(tensors, path, metadata=header)

        return spoil

    def first(tensors: dict) -> str:
        return sorted(key for key, value in tensors.items() if value.is_floating_point() and value.numel())[0]

    ways = {
        "dropped": lambda t, h: t.pop(first(t)), "renamed": lambda t, h: t.update({"model/evil": t.pop(first(t))}),
        "no-group": lambda t, h: t.update({"evil": t.pop(first(t))}), "nan": lambda t, h: t[first(t)].fill_(float("nan")),
        "shape": lambda t, h: t.update({first(t): t[first(t)].reshape(-1)[None, None].clone()}),
        "whole": lambda t, h: t.update({first(t): t[first(t)].long()}), "none": lambda t, h: t.clear(),
        "no-record": lambda t, h: h.pop("record"), "null": lambda t, h: h.update(record="null"),
        "list": lambda t, h: h.update(record="[]"), "deep": lambda t, h: h.update(record="[" * 100_000),
        "broken": lambda t, h: h.update(record="{"), "format": lambda t, h: h.update(format="99"),
        "word-format": lambda t, h: h.update(format="x"),
    }  # fmt: skip
    evaluate = ("evaluate", "run-mlp", "--data=h.npz")
    resume = ("fit", "mlp", "--data=h.npz", "--model.dim=4", *FIT[1:-1], "--loop.epochs=2", "--resume", "--out=run-mlp")
    for name, change in ways.items():
        may = None if name == "none" else ()
        yield Case(f"weights/{name}", ("run-mlp", "h.npz"), "run-mlp/model.safetensors", altered(change), evaluate)
        yield Case(f"resume/{name}", ("run-mlp", "h.npz"), "run-mlp/checkpoint.safetensors", altered(change), resume, may
                   if name != "format" else ())  # fmt: skip
    for field in ("epoch", "step", "total_steps", "best_epoch", "best", "loss_sum", "seconds"):
        for value in (-1, "x", None, 10**30, [], 0.5):

            def change(tensors: dict, header: dict, field: str = field, value: object = value) -> None:
                record = json.loads(header["record"])
                record["progress"][field] = value
                header["record"] = json.dumps(record)

            yield Case(f"progress/{field}/{value!r}", ("run-mlp", "h.npz"), "run-mlp/checkpoint.safetensors",
                       altered(change), resume, None)  # fmt: skip
    claim = struct.pack("<Q", 2**60) + b"{}"
    for name, data in {"claim": claim, "json": struct.pack("<Q", 4) + b"null", "offsets": _tensor(10**12)}.items():
        yield Case(f"weights/{name}", ("run-mlp", "h.npz"), "run-mlp/model.safetensors",
                   _do(lambda path, data=data: path.write_bytes(data)), evaluate)  # fmt: skip
    for run in RUN_FILES:
        yield Case(f"method/{run}", (run, OF_RUN[run]), f"{run}/config.json",
                   _do(lambda path: rewrite_json(path, method="gcnii")), ("evaluate", run, f"--data={OF_RUN[run]}"))  # fmt: skip
    assert set(COMMAND_OF) == set(RUN_FILES)


def _tensor(size: int) -> bytes:
    head = json.dumps({"model/a": {"dtype": "F32", "shape": [size], "data_offsets": [0, 4 * size]}}).encode()
    return struct.pack("<Q", len(head)) + head + bytes(16)


def _documents() -> Iterator[Case]:
    texts = {"null": "null", "list": "[]", "number": "3", "text": '"x"', "deep": "[" * 100_000, "deep-keys": '{"a":' * 50_000,
             "digits": '{"method": ' + "9" * 10_000 + "}", "twice": '{"method": "mlp"}{"a": 1}', "latin1": '{"a": "\xe9"}'}  # fmt: skip
    for name, text in texts.items():
        encoding = "latin1" if name == "latin1" else "utf-8"
        change = _do(lambda path, text=text, encoding=encoding: path.write_bytes(text.encode(encoding)))
        for file in ("config.json", "data.json"):
            argv = ("evaluate", "run-mlp", "--data=h.npz")
            yield Case(f"json/{file}/{name}", ("run-mlp", "h.npz"), f"run-mlp/{file}", change, argv)
        for file in ("config.json", "result.json", "environment.json", "data.json"):
            if file != "environment.json" or name != "digits":
                page = ("report", "run-mlp", "--out=page.html")
                yield Case(f"page/{file}/{name}", ("run-mlp",), f"run-mlp/{file}", change, page)
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30)
    )
    yamls = {"aliases": bomb, "inline": "model.dim: " + "&a [" + "*b, " * 9 + "]", "deep": "[" * 20_000, "tag":
             "!!python/object/apply:os.system ['touch evil']", "circle": "model: &m {dim: *m}", "large-dim": "model: {dim: 1e9}",
             "largest-dim": "model: {dim: 1000000}", "layers": "model: {num_layers: 1000000000}", "list": "- 1\n- 2\n", "tab":
             "model:\n\tdim: 4\n", "unknown": "modle: {dim: 4}\n", "class": "model: {class_path: evil.M}\n", "class-text":
             "model: evil.M\n", "seed": "loop: {seed: 99999999999999999999999}\n", "nan": "loop: {optim: {lr: .nan}}\n"}  # fmt: skip
    for name, text in yamls.items():
        yield Case(f"yaml/{name}", ("settings.yaml", "h.npz"), "settings.yaml", _write(text),
                   ("fit", "mlp", "--data=h.npz", "--config=settings.yaml", *FIT))  # fmt: skip
    lines = {"null": "null\n", "list": "[1]\n", "metrics": '{"recipe": "a", "settings": "b", "run": 0, "metrics": {"test": 3}}\n',
             "word": '{"recipe": "a", "settings": "b", "run": 0, "metrics": {"test": {"average_precision": "x"}}}\n'}  # fmt: skip
    for name, text in lines.items():
        yield Case(f"results/{name}", ("results.jsonl",), "results.jsonl", _write(text),
                   ("report", "--results=results.jsonl", "--out=page.html"))  # fmt: skip
    rows = {"epoch": '{"epoch": "x"}\n', "list": "[1]\n", "loss": '{"epoch": 1, "train_loss": {}}\n', "inf":
            '{"epoch": 1, "train_loss": Infinity}\n', "huge": '{"epoch": 1, "train_loss": 1' + "0" * 400 + "}\n"}  # fmt: skip
    for name, text in rows.items():
        yield Case(f"metrics/{name}", ("run-mlp",), "run-mlp/metrics.jsonl", _write(text),
                   ("report", "run-mlp", "--out=page.html"))  # fmt: skip


def extra(good: Path) -> None:
    """Write the good files that only these cases need."""
    pd.DataFrame({"src": [1, 2], "dst": [7, 8], "t": [20_000, 20_001], "label": [0, 1], "feat_0": [0.5, 0.1]}).to_csv(
        good / "later.csv", index=False
    )
    (good / "settings.yaml").write_text("model: {dim: 4}\n")
    line = {
        "recipe": "mlp/x",
        "settings": "abc",
        "run": 0,
        "metrics": {"val": {"average_precision": 0.5}, "test": {"average_precision": 0.5}},
    }
    line |= {
        "altered": {},
        "method": "mlp",
        "data": "x",
        "metric": "average_precision",
        "version": "0",
        "gpu": None,
        "processor": "p",
    }
    (good / "results.jsonl").write_text(json.dumps(line | {"threads": 1, "cores": 1, "seconds": 1.0}) + "\n")
