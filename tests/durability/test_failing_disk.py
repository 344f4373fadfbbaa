"""A full disk, an exceeded quota, a failing or read-only disk during a write: earlier files are kept.

Each writer fails when a file is created, synced or renamed. It also fails within its bytes, by a limit on the size of
files and, if the process may mount one, by a disk that is really full.
"""

import errno
import os
import re
import resource
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import hopstate
from hopstate.cli.main import main
from hopstate.data.events import EventStream
from hopstate.errors import StorageError
from hopstate.io.files import cached_array, write_text
from hopstate.io.output import draw_figure, write_table
from hopstate.methods.nagphormer.hops import hop_tokens
from hopstate.runs.reproduce import append_line
from hopstate.sampling.negatives import Negatives
from hopstate.training.checkpoint import Checkpoint, save_checkpoint
from hopstate.training.run_folder import RunFolder

BIG = 20_000  # numbers


def graph(seed: int) -> hopstate.Graph:
    rng = np.random.default_rng(seed)
    made = hopstate.Graph.from_edges(rng.integers(0, 40, (90, 2)), num_nodes=40)
    return made.with_(x=rng.normal(size=(40, 300)).astype(np.float32), y=np.arange(40) % 2)


def negatives(folder: Path, seed: int) -> None:
    ends = np.random.default_rng(seed).integers(0, 1 << 40, BIG)
    facts = {"strategy": "random", "seed": seed, "batch_size": 2}
    Negatives(rows=ends, offsets=np.arange(BIG + 1), src=ends, dst=ends, **facts).save(folder / "n.npz")


def events(seed: int) -> EventStream:
    ends = np.random.default_rng(seed).integers(0, 50, (2, BIG))
    return EventStream(src=ends[0], dst=ends[1], t=np.arange(BIG), num_nodes=50)


def floats(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=BIG).astype(np.float32)


def table(seed: int) -> pd.DataFrame:
    return pd.DataFrame({"a": floats(seed)})


# name → (a writer into a folder from a seed, the file that the message must name)
WRITERS: dict[str, tuple[Callable[[Path, int], Any], str]] = {
    "tokens": (lambda f, s: hop_tokens(graph(s), 2, max_memory=1 << 17, folder=f), "hops_"),
    "cache": (lambda f, s: cached_array(f / f"c{s}.npy", (BIG,), lambda: floats(s)), "c1.npy"),
    "negatives": (negatives, "n.npz"),
    "checkpoint": (lambda f, s: save_checkpoint(f / "c.safetensors", _checkpoint(s)), "c.safetensors"),
    "results": (lambda f, s: append_line(f / "r.jsonl", {"run": s, "note": "x" * BIG}), "r.jsonl"),
    "text": (lambda f, s: write_text(f / "a.json", str(floats(s).tolist())), "a.json"),
    "csv": (lambda f, s: write_table(table(s), f / "t.csv"), "t.csv"),
    "csv.gz": (lambda f, s: write_table(table(s), f / "t.csv.gz"), "t.csv.gz"),
    "parquet": (lambda f, s: write_table(table(s), f / "t.parquet"), "t.parquet"),
    "figure": (lambda f, s: draw_figure(f / "f.png", (2, 2), lambda g: g.text(0, 0, str(s))), "f.png"),
    "graph": (lambda f, s: graph(s).save(str(f / "g")), "g"),
    "events": (lambda f, s: events(s).save(f / "e"), "e"),
}


def _checkpoint(seed: int) -> Checkpoint:
    return Checkpoint(tensors={"model": {"w": torch.from_numpy(floats(seed))}})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def failing(where: str, number: int, folder: Path) -> Iterator[None]:
    """Make the system reject creating, syncing or renaming files in a folder."""
    patch = pytest.MonkeyPatch()
    error = OSError(number, os.strerror(number))
    names = {"make": ("open", "mkdir"), "sync": ("fsync",), "rename": ("replace", "rename")}[where]

    def refuse(name: str, call: Any) -> Any:
        def refused(first: Any, *rest: Any, **options: Any) -> Any:
            inside = name == "fsync" or str(first).startswith(str(folder))
            new = name != "open" or (rest and rest[0] & os.O_CREAT and not str(first).endswith(".lock"))
            if inside and new:
                raise error
            return call(first, *rest, **options)

        return refused

    for name in names:
        patch.setattr(os, name, refuse(name, getattr(os, name)))
    try:
        yield
    finally:
        patch.undo()


@contextmanager
def largest(size: int) -> Iterator[None]:
    """Limit the size of files."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


FAULTS = {"make": errno.EDQUOT, "sync": errno.EIO, "rename": errno.EROFS}
QUICK = {(name, "sync") for name in WRITERS} | {("text", "make"), ("text", "rename"), ("graph", "rename")}


@pytest.mark.parametrize(
    ("name", "where"),
    [
        pytest.param(name, where, marks=() if (name, where) in QUICK else pytest.mark.slow)
        for name in WRITERS
        for where in FAULTS
    ],
)
def test_a_failing_disk_leaves_the_old_or_the_new_file(name: str, where: str, tmp_path: Path) -> None:
    write, file = WRITERS[name]
    write(tmp_path, 0)
    before = contents(tmp_path)
    with failing(where, FAULTS[where], tmp_path), pytest.raises(StorageError, match=re.escape(file)):
        write(tmp_path, 1)
    assert contents(tmp_path) == before
    write(tmp_path, 1)
    assert contents(tmp_path) != before


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_cannot_be_written_completely_is_named(name: str, tmp_path: Path) -> None:
    write, file = WRITERS[name]
    write(tmp_path, 0)
    before = contents(tmp_path)
    size = min(max(len(content) for content in before.values()) // 2, 40_000)
    with largest(size), pytest.raises(StorageError, match=re.escape(file)):
        write(tmp_path, 1)
    assert contents(tmp_path) == before


def test_metrics_that_cannot_be_appended_to_are_named(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"loop": {"seed": 1}})
    run.start_metrics([{"epoch": 1, "loss": 1.0}])
    with largest(30), pytest.raises(StorageError, match=r"metrics\.jsonl"):
        run.append_metrics({"epoch": 2, "loss": 1.0})
    assert run.history() == [{"epoch": 1, "loss": 1.0}]  # an incomplete line does not count


SMALL = ["--model.dim", "4", "--loop.progress", "false", "--loop.logger", "none"]


@pytest.mark.slow
def test_a_run_continues_after_a_checkpoint_that_could_not_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph(0).save(str(tmp_path / "g"))
    fit = [
        "fit",
        "mlp",
        "--data",
        str(tmp_path / "g"),
        *SMALL,
        "--loop.optim.schedule",
        "constant",
        "--loop.optim.warmup",
        "0",
    ]
    fit += ["--out", str(tmp_path / "run"), "--loop.epochs"]
    assert main([*fit, "1"]) == 0
    before = contents(tmp_path)
    replace = os.replace

    def refused(one: Any, other: Any) -> None:
        if Path(other).name == "checkpoint.safetensors":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(one, other)

    monkeypatch.setattr(os, "replace", refused)
    assert main([*fit, "2", "--resume"]) == 1
    assert "checkpoint.safetensors" in capsys.readouterr().err
    after = contents(tmp_path)
    kept = ("checkpoint.safetensors", "model.safetensors", "result.json", "split.npz", "data.json")
    assert all(before[f"run/{name}"] == after[f"run/{name}"] for name in kept)
    monkeypatch.undo()
    assert main([*fit, "2", "--resume"]) == 0


FULL = """
    import sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    from test_failing_disk import WRITERS, contents
    from hopstate.errors import StorageError
    for name, (write, file) in WRITERS.items():
        folder = Path(sys.argv[1], name.replace(".", "-"))
        folder.mkdir()
        write(folder, 0)
        before, fill = contents(folder), Path(sys.argv[1], "fill")
        with fill.open("wb", buffering=0) as file_:
            try:
                while True:
                    file_.write(bytes(4096))
            except OSError:
                pass
        try:
            write(folder, 1)
        except StorageError as error:
            assert file in str(error) or name == "tokens", (name, error)
        else:
            raise AssertionError(f"{name} was written to a full disk")
        assert contents(folder) == before, name
        fill.unlink()
        print(name, flush=True)
"""


@pytest.mark.slow
def test_a_disk_that_is_full(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare, to mount a small disk of its own")
    script, place = tmp_path / "script.py", tmp_path / "disk"
    script.write_text(textwrap.dedent(FULL))
    place.mkdir()
    mount = f"mount -t tmpfs -o size=8m disk {place}"
    if subprocess.run(["unshare", "-Urm", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("a process may not mount a small disk of its own here")
    command = f"{mount} && {sys.executable} {script} {place} {Path(__file__).parent}"
    done = subprocess.run(["unshare", "-Urm", "sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == list(WRITERS)
