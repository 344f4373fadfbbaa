"""A seeded corpus of bad input: every format and every file of a run, damaged in many ways.

A case copies good files to its own folder, damages one of them, and names a command line. It passes in one of two ways:
a named error (`error: ...` that names a file, exit code 1 or 2), or, if `reads` is given, output that contains it.
`reads` is None for damage that may not change the meaning of a file, such as an unused byte: then both are accepted.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Spoil = Callable[[Path, np.random.Generator], None]


@dataclass(frozen=True)
class Case:
    """A damaged file and the command that reads it.

    Args:
        name: of the case, which also seeds it.
        needs: files and folders that are copied from the good ones.
        target: the file that is spoiled, among them.
        spoil: what is done to it.
        argv: the command line.
        reads: texts that a reading must print; () where only a named error will do, None where either will.
    """

    name: str
    needs: tuple[str, ...]
    target: str
    spoil: Spoil
    argv: tuple[str, ...]
    reads: tuple[str, ...] | None = ()


def place(case: Case, good: Path, folder: Path, seed: int = 0) -> None:
    """Create the folder of a case."""
    folder.mkdir(parents=True)
    for name in case.needs:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (good / name).is_dir():
            shutil.copytree(good / name, folder / name)
        else:
            shutil.copy(good / name, folder / name)
    if "search" in case.needs:  # which contains the path of its data
        search = folder / "search" / "search.json"
        search.write_text(search.read_text().replace(str(good), str(folder)))
    number = int.from_bytes(case.name.encode()[-16:], "little")
    target = next(folder.glob(case.target)) if "*" in case.target else folder / case.target
    case.spoil(target, np.random.default_rng([seed, number]))


# ---- damage of any file ----------------------------------------------------------------------------------------
def _bytes(change: Callable[[bytes, np.random.Generator], bytes]) -> Spoil:
    return lambda path, rng: path.write_bytes(change(path.read_bytes(), rng)) and None


def _instead(make: Callable[[Path], object]) -> Spoil:
    def spoil(path: Path, rng: np.random.Generator) -> None:
        path.unlink()
        make(path)

    return spoil


def _flip(data: bytes, rng: np.random.Generator, count: int = 4) -> bytes:
    out = bytearray(data)
    for at in rng.integers(0, len(out), count):
        out[at] ^= 1 << int(rng.integers(8))
    return bytes(out)


def _cut(share: float) -> Spoil:
    return _bytes(lambda data, rng: data[: int(share * len(data))])


ANY: dict[str, tuple[Spoil, bool]] = {  # kind → (damage, whether reading is accepted)
    "empty": (_bytes(lambda data, rng: b""), False),
    "folder": (_instead(lambda path: path.mkdir()), False),
    "pipe": (_instead(os.mkfifo), False),
    "device": (_instead(lambda path: path.symlink_to("/dev/zero")), False),
    "loop": (_instead(lambda path: path.symlink_to(path)), False),
    "dangling": (_instead(lambda path: path.symlink_to("/nowhere/at/all")), False),
    "zeros": (_bytes(lambda data, rng: bytes(1000)), False),
    "noise": (_bytes(lambda data, rng: rng.bytes(2000)), False),
    "packed-noise": (_bytes(lambda data, rng: b"\x1f\x8b" + rng.bytes(500)), False),
    "zip-noise": (_bytes(lambda data, rng: b"PK\x03\x04" + rng.bytes(500)), False),
    "parquet-noise": (_bytes(lambda data, rng: b"PAR1" + rng.bytes(500) + b"PAR1"), False),
    "npy-noise": (_bytes(lambda data, rng: b"\x93NUMPY\x01\x00" + rng.bytes(500)), False),
    "html": (_bytes(lambda data, rng: b"<html><body>404 not found</body></html>\n"), False),
    "utf16": (_bytes(lambda data, rng: "a,b\n1,2\n".encode("utf-16")), False),
    **{f"cut-{share}": (_cut(share), True) for share in (0.02, 0.2, 0.5, 0.8, 0.97)},
    **{f"flip-{i}": (_bytes(_flip), True) for i in range(6)},
    **{f"inside-{i}": (_bytes(lambda d, rng: d[: len(d) // 2] + rng.bytes(9) + d[len(d) // 2 :]), True) for i in "01"},
    "tail": (_bytes(lambda data, rng: data + rng.bytes(64)), True),
    "twice": (_bytes(lambda data, rng: data + data), True),
}
EVENT_FILES = ("events.csv", "events.tsv", "events.parquet", "snap.txt", "packed.csv.gz", "jodie.csv")
EVENT_FILES += ("tgbl-wiki-v2.zip",)
GRAPH_FILES = ("h.npz", "plain.npz", "g.npz", "edges.csv", "edges.parquet", "data.pt")
FIT = ("--loop.epochs=1", "--loop.progress=false", "--loop.logger=none", "--loop.device=cpu", "--out=new")
RANK = ("--source=1", "--candidates=ids.csv")
TABLES = ("fit", "mlp", "--data=edges.csv", "--read.features=features.csv", "--read.labels=labels.csv", *FIT)


def _readers() -> Iterator[tuple[tuple[str, ...], str, tuple[str, ...]]]:
    """Yield (files, the one to damage, command) of every reader."""
    for name in EVENT_FILES:
        yield (name,), name, ("inspect", name, "--kind", "events")
    for name in GRAPH_FILES:
        yield (name,), name, ("inspect", name, "--kind", "graph")
    triple = ("ml_x.csv", "ml_x.npy", "ml_x_node.npy")
    for name in triple:
        yield triple, name, ("inspect", "ml_x.csv", "--kind", "events")
    for name in ("events.json", "src.npy", "t.npy", "edge_attr.npy"):
        yield ("stream",), f"stream/{name}", ("inspect", "stream", "--kind", "events")
    for name in ("graph.json", "indptr.npy", "indices.npy", "x.npy", "y.npy", "mask_train.npy"):
        yield ("graph",), f"graph/{name}", ("inspect", "graph", "--kind", "graph")
    for name in ("features.csv", "labels.csv"):
        yield ("edges.csv", "features.csv", "labels.csv"), name, TABLES
    for name in ("TU.txt", "10fold/TU-test_idx-1.txt", "10fold/TU-train_idx-3.txt"):
        yield ("TU.txt", "10fold"), name, ("fit", "gin-graphs", "--data=TU.txt", "--model.dim=4", *FIT)
    yield ("events.csv", "x.npy"), "x.npy", ("fit", "recency", "--data=events.csv", "--read.features=x.npy", *FIT)


RUN_FILES = {
    "run-mlp": ("config.json", "data.json", "model.safetensors"),
    "run-hop": ("config.json", "model.safetensors"),
    "run-memory": ("config.json", "data.json", "model.safetensors", "negatives/test_random.npz"),
    "run-edgebank": ("config.json", "negatives/test_random.npz"),
    "run-trees": ("config.json", "model.safetensors"),
}
OF_RUN = {
    "run-mlp": "h.npz",
    "run-hop": "h.npz",
    "run-memory": "events.csv",
    "run-edgebank": "events.csv",
    "run-trees": "events.csv",
}
COMMAND_OF = {
    "run-mlp": "mlp",
    "run-hop": "nagphormer",
    "run-memory": "ctdg-ssm",
    "run-edgebank": "edgebank",
    "run-trees": "pair-trees",
}


def _runs() -> Iterator[tuple[tuple[str, ...], str, tuple[str, ...]]]:
    """Yield (files, the one to damage, command) of every file of a run."""
    for run, names in RUN_FILES.items():
        for name in names:
            own = () if "negatives" in name else (f"--data={OF_RUN[run]}",)  # other data have other negatives
            yield (run, OF_RUN[run]), f"{run}/{name}", ("evaluate", run, *own)
    for name in ("config.json", "data.json", "result.json", "environment.json", "metrics.jsonl"):
        yield ("run-mlp",), f"run-mlp/{name}", ("report", "run-mlp", "--out=page.html")
    memory = ("stream", "run-memory", "--data=later.csv", "--out=scores.csv")
    yield ("run-memory", "events.csv", "later.csv"), "run-memory/state/live.json", memory
    for name in ("events-*.safetensors", "memory-*.safetensors", "live.json"):
        other = ("stream", "kept", "--data=later.csv", "--state=kept/state", "--save=other", "--out=scores.csv")
        yield ("kept", "events.csv", "later.csv"), f"kept/state/{name}", other
    for name, command in (("later.csv", ("score", "--pairs=later.csv")), ("ids.csv", ("rank", *RANK))):
        yield ("run-trees", "events.csv", name), name, (command[0], "run-trees", *command[1:], "--out=scores-out.csv")
    events = ("score", "run-trees", "--pairs=1,7", "--events=later.csv", "--out=scores-out.csv")
    yield ("run-trees", "events.csv", "later.csv"), "later.csv", events
    yield ("run-tokens", "h.npz"), "run-tokens/tokens/hops_*.npy", ("evaluate", "run-tokens")
    search = ("tune", "mlp", "--data=h.npz", "--trials=1", "--space=model.dim=4,8", *FIT[:-1], "--out=search")
    yield ("search", "h.npz"), "search/search.json", search
    yield ("search", "h.npz"), "search/best.yaml", ("fit", "mlp", "--config=search/best.yaml", "--data=h.npz", *FIT[3:])
    yield ("results.jsonl",), "results.jsonl", ("report", "--results=results.jsonl", "--out=page.html")
    yield ("settings.yaml", "h.npz"), "settings.yaml", ("fit", "mlp", "--data=h.npz", "--config=settings.yaml", *FIT)


def cases() -> list[Case]:
    """Return the whole corpus, in a fixed order."""
    from hostile import special

    found = []
    for needs, target, argv in (*_readers(), *_runs()):
        for how, (spoil, may) in ANY.items():
            label = f"{argv[0]}/{target}/{how}" + ("/events" if "--events=later.csv" in argv else "")
            either = (may and not target.endswith(SUMMED)) or target in OPTIONAL.get(how, ())
            found.append(Case(label, needs, target, spoil, argv, None if either else ()))
    return [*found, *special.cases()]


SUMMED = (".safetensors", "state/live.json")  # with checksums: no damage is accepted

# damage with a valid meaning: an empty table of metrics is that of a run that has not started, an incomplete last line
# (zeros after a power failure) is ignored, an empty settings file changes no setting
OPTIONAL: dict[str, tuple[str, ...]] = {
    "empty": ("run-mlp/metrics.jsonl", "results.jsonl", "settings.yaml", "search/best.yaml"),
    "zeros": ("run-mlp/metrics.jsonl",),
    "pipe": ("run-tokens/tokens/hops_*.npy",),  # recomputed
    "device": ("run-tokens/tokens/hops_*.npy",),
    **dict.fromkeys(
        ("dangling", "loop"),
        (
            "ml_x.npy",
            "ml_x_node.npy",
            "10fold/TU-test_idx-1.txt",
            "run-memory/negatives/test_random.npz",
            "run-edgebank/negatives/test_random.npz",
            "run-memory/state/live.json",
            "search/search.json",
            "run-tokens/tokens/hops_*.npy",
            *(f"run-mlp/{name}" for name in ("metrics.jsonl", "result.json", "environment.json", "data.json")),
        ),
    ),
}


def rewrite_npz(path: Path, **changes: np.ndarray | None) -> None:
    """Replace arrays of an .npz file; None removes one."""
    with np.load(path) as archive:
        arrays = dict(archive)
    np.savez(path, **{key: value for key, value in (arrays | changes).items() if value is not None})


def rewrite_json(path: Path, **changes: object) -> None:
    """Replace keys of a JSON file, dotted if nested; ... removes one."""
    tree = json.loads(path.read_text())
    for key, value in changes.items():
        *groups, last = key.split("__")
        place_ = tree
        for group in groups:
            place_ = place_[group]
        if value is ...:
            place_.pop(last, None)
        else:
            place_[last] = value
    path.write_text(json.dumps(tree))


def zip_claim(path: Path, size: int) -> None:
    """Write an .npz whose member claims a larger size than it has."""
    with zipfile.ZipFile(path, "w") as archive, archive.open("edges.npy", "w") as member:
        head = {"descr": "<i8", "fortran_order": False, "shape": (size, 2)}
        np.lib.format.write_array_header_1_0(member, head)
        member.write(bytes(160))
