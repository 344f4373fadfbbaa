"""Write a temporary file, sync it, rename it, sync its folder: each writer keeps this order.

A power failure never leaves a file that is neither the old nor the new one, and never loses a finished write. See
`forgetful_disk.Disk` for the states after a power failure.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from forgetful_disk import Disk
from test_failing_disk import WRITERS, contents

import hopstate
from hopstate.data.events import EventStream
from hopstate.data.stream_checkpoint import load_stream_state
from hopstate.data.stream_state import StreamState
from hopstate.io.files import append_file, cached_array, sync_file, write_text
from hopstate.io.output import write_table
from hopstate.io.tensors import write_tensors
from hopstate.serving.snapshots import save_snapshot
from hopstate.training.checkpoint import Checkpoint, write_result
from hopstate.training.run_folder import RunFolder


def result(folder: Path, seed: int) -> None:
    saved = Checkpoint(tensors={"model": {"w": torch.full((3,), float(seed))}})
    marker = folder / "result.json"
    write_result(folder / "model.safetensors", saved, marker, str(seed), {folder / "data.json": str(seed)})


def metrics(folder: Path, seed: int) -> None:
    if seed == 0:
        RunFolder.create(folder / "run", {"loop": {"seed": 1}}).start_metrics([{"epoch": 0, "loss": 1.0}])
    else:
        run = RunFolder.open(folder / "run")
        run.append_metrics({"epoch": seed, "loss": 1.0})
        run.sync_metrics()


def tensors(folder: Path, seed: int) -> None:
    write_tensors(folder / "a.safetensors", {"w": torch.full((3,), float(seed))}, {}, format="a")


def cache(folder: Path, seed: int) -> None:
    cached_array(folder / f"c{seed}.npy", (4,), lambda: np.full(4, seed, np.float32))


def added(folder: Path, seed: int) -> None:
    append_file(folder / "journal", f"{seed}\n")
    sync_file(folder / "journal")


def graph(folder: Path, seed: int) -> None:
    hopstate.Graph.from_edges(np.array([[seed, 3]]), num_nodes=4).save(str(folder / "g"))


def past(folder: Path, seed: int) -> None:
    saved = load_stream_state(folder) if seed else StreamState()
    event = EventStream(src=np.array([0]), dst=np.array([4]), t=np.array([9 + seed]), num_nodes=6)
    save_snapshot(saved.joined(event, allow_duplicates=True)[1], folder)


SMALL: dict[str, Callable[[Path, int], Any]] = {
    **{name: WRITERS[name][0] for name in ("negatives", "checkpoint", "results")},
    "parquet": lambda f, s: write_table(pd.DataFrame({"a": [s]}), f / "t.parquet"),
    "csv": lambda f, s: write_table(pd.DataFrame({"a": [s]}), f / "t.csv"),
    "text": lambda f, s: write_text(f / "a.json", str(s)),
    "tokens": WRITERS["tokens"][0],
    "cache": cache,
    "journal": added,
    "tensors": tensors,
    "result": result,
    "metrics": metrics,
    "graph": graph,
    "past": past,
}


def files(found: Any) -> dict[str, bytes]:
    """Return contents by name, without temporary files and locks."""
    return {n: c for n, c in found.items() if c is not None and not any(p.startswith(".") for p in Path(n).parts)}


def broken(write: Callable[[Path, int], Any], root: Path, **disk: Any) -> list[str]:
    """Return what a power failure breaks when a writer replaces an earlier file."""
    root.mkdir(exist_ok=True)
    write(root, 0)
    before = files(contents(root))
    with Disk(root, **disk) as noted:
        write(root, 1)
    after = files(contents(root))
    assert after != before
    ends = [files(state) for _, state in noted.at_end()]
    found = [f"{name} is lost" for end in ends for name, content in after.items() if end.get(name) != content]
    for call, state in noted.states():
        for name, content in files(state).items():
            wrong = content not in (before.get(name), after.get(name))
            if wrong and not name.endswith(GROWING):  # an appended file may have any part of the new bytes
                found.append(f"{name} is broken before {call}")
    return found


GROWING = (".jsonl", "journal")


@pytest.mark.parametrize("name", SMALL)
def test_each_writer_keeps_the_order(name: str, tmp_path: Path) -> None:
    assert broken(SMALL[name], tmp_path) == []


@pytest.mark.parametrize("syncs", [(), ("files",), ("folders",)])
def test_a_missing_sync_is_seen(syncs: tuple[str, ...], tmp_path: Path) -> None:
    assert broken(SMALL["text"], tmp_path / "text", syncs=syncs)
    assert broken(SMALL["graph"], tmp_path / "graph", syncs=syncs)


def test_a_result_counts_only_after_its_files(tmp_path: Path) -> None:
    """The marker is deleted before a file changes, and written after all of them."""
    result(tmp_path, 0)
    before = files(contents(tmp_path))
    with Disk(tmp_path) as noted:
        result(tmp_path, 1)
    after = files(contents(tmp_path))
    for call, state in noted.states():
        if "result.json" in state:
            assert files(state) in (before, after), call
