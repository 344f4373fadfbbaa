"""Power fails at any point of fit, stream, preparation and writing: the files found are valid, and work resumes."""

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from forgetful_disk import Disk

import hopstate
from hopstate.errors import DataError, HopstateError
from hopstate.io.files import replace_file
from hopstate.runs.reproduce import append_line
from hopstate.runs.run import evaluate, load
from hopstate.training import progress
from hopstate.training import run_folder as run
from hopstate.training.checkpoint import load_checkpoint

LOOP = {"epochs": 2, "checkpoint_seconds": 0, "progress": False, "logger": "none", "device": "cpu"}
LOOP |= {"optim": {"schedule": "constant", "warmup": 0}}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("mlp", {"model": {"dim": 4}}),
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip slow work that writes no relevant file: git, and drawing of curves."""
    monkeypatch.setattr(run, "_revision", lambda: None)
    curves = lambda path, *_: replace_file(path, lambda part: part.write_bytes(b"curves"))  # noqa: E731
    monkeypatch.setattr(progress, "draw_curves", curves)


def graph() -> hopstate.Graph:
    rng = np.random.default_rng(0)
    graph = hopstate.Graph.from_edges(rng.integers(0, 40, (90, 2)), num_nodes=40)
    return graph.with_(x=rng.normal(size=(40, 3)).astype(np.float32), y=np.arange(40) % 2)


def fit(folder: Path, method: str, settings: dict[str, Any], *, resume: bool = False, **loop: Any) -> hopstate.Run:
    config = {**settings, "loop": {**LOOP, **loop}}
    return hopstate.fit(method, graph(), out=folder, resume=resume, config=config)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(folder / "model.safetensors").tensors["model"]


def assert_same(folder: Path, other: Path) -> None:
    one, two = weights(folder), weights(other)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def every(disk: Disk, check: Callable[[], None], step: int = 1) -> int:
    """Run check on every step-th state after a power failure; return the number of states."""
    count = 0
    for call, found in itertools.islice(disk.states(), 0, None, step):
        disk.put(found)
        try:
            check()
        except (HopstateError, AssertionError) as error:
            raise AssertionError(f"power lost before {call} left {sorted(found)}: {error!r}") from error
        count += 1
    return count


# ---- fit ------------------------------------------------------------------------------------------------------
def begun(tmp_path: Path, name: str, step: int = 1, **disk: Any) -> int:
    method, settings = METHODS[name]
    root, whole = tmp_path / "root", tmp_path / "whole"
    root.mkdir()
    expected = fit(whole, method, settings)
    with Disk(root, **disk) as noted:
        fit(root / "run", method, settings)
    assert all("run/result.json" in found for _, found in noted.at_end()), "what was finished is lost"

    def check() -> None:
        trained = (root / "run" / "metrics.jsonl").exists()
        assert fit(root / "run", method, settings, resume=trained).metrics == expected.metrics
        assert_same(root / "run", whole)
        left = [path.name for path in root.rglob(".*")]
        assert not left

    return every(noted, check, step)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_power_loss_during_fit(tmp_path: Path, name: str) -> None:
    assert begun(tmp_path, name, step=5) > 30


@pytest.mark.slow
@pytest.mark.parametrize("syncs", [(), ("files",), ("folders",)])
def test_fit_is_not_safe_without_syncs(tmp_path: Path, syncs: tuple[str, ...]) -> None:
    with pytest.raises(AssertionError, match=r"power lost before|is lost"):
        begun(tmp_path, "mlp", syncs=syncs)


@pytest.mark.slow
def test_a_finished_run_that_is_continued_is_valid_until_the_next_one_is(tmp_path: Path) -> None:
    root, settings = tmp_path / "root", {"model": {"dim": 4}}
    first = fit(root / "run", "mlp", settings)
    with Disk(root) as noted:
        second = fit(root / "run", "mlp", settings, resume=True, epochs=4)
    assert first.metrics != second.metrics

    def check() -> None:
        now = {split: evaluate(root / "run", data=graph(), split=split) for split in ("val", "test")}
        assert now in [{split: of.metrics[split] for split in now} for of in (first, second)]
        if (root / "run" / "result.json").exists():
            assert {split: load(root / "run").metrics[split] for split in now} == now
        assert fit(root / "run", "mlp", settings, resume=True, epochs=4).metrics == second.metrics

    assert every(noted, check, step=7) > 5


# ---- what is made before training -------------------------------------------------------------------------------
def test_power_loss_while_writing_tokens(tmp_path: Path) -> None:
    from hopstate.methods.nagphormer.hops import hop_tokens

    root, made = tmp_path / "root", graph()
    root.mkdir()

    def tokens(folder: Path) -> np.ndarray:
        return np.array(hop_tokens(made, 3, max_memory=3000, folder=folder).array)

    whole = tokens(tmp_path / "whole")
    with Disk(root) as noted:
        tokens(root / "tokens")
    every(noted, lambda: np.testing.assert_array_equal(tokens(root / "tokens"), whole), step=3)


# ---- records and results ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("syncs", [("files", "folders"), ("files",), ("folders",)])
def test_power_loss_while_saving_a_graph(tmp_path: Path, syncs: tuple[str, ...]) -> None:
    root, number = tmp_path / "root", itertools.count()
    first, second = (hopstate.Graph.from_edges(np.array([edge])) for edge in ([0, 1], [1, 2]))
    root.mkdir()
    first.save(str(root / "g"))
    with Disk(root, syncs=syncs) as noted:
        second.save(str(root / "g"))
    whole = {first.content_hash, second.content_hash}

    def check() -> None:
        assert hopstate.Graph.load(str(root / "g")).content_hash in whole
        if next(number) % 10:
            return
        first.save(str(root / "g"))
        assert hopstate.Graph.load(str(root / "g")).content_hash == first.content_hash
        assert [path.name for path in root.iterdir() if not path.name.endswith(".part")] == ["g"]

    def finished() -> bool:
        found = []
        for _, state in noted.at_end():
            noted.put(state)
            found.append(hopstate.Graph.load(str(root / "g")).content_hash)
        return set(found) == {second.content_hash}

    if len(syncs) == 2:
        assert every(noted, check) > 10
        assert finished()
    else:
        with pytest.raises(AssertionError):  # noqa: PT012
            every(noted, check)
            assert finished()


def test_power_loss_while_writing_results(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    append_line(root / "r.jsonl", {"run": 0})
    with Disk(root) as noted:
        append_line(root / "r.jsonl", {"run": 1})
    first, both = '{"run": 0}\n', '{"run": 0}\n{"run": 1}\n'

    def check() -> None:
        assert (root / "r.jsonl").read_text() in (first, both)
        append_line(root / "r.jsonl", {"run": 2})

    assert every(noted, check) > 5


# ---- stream -----------------------------------------------------------------------------------------------------
def events(count: int, start: int) -> pd.DataFrame:
    rng = np.random.default_rng(start)
    names = rng.integers(0, 6, count), rng.integers(6, 10, count)
    return pd.DataFrame({"source": names[0], "target": names[1], "time": start + np.arange(count)})


@pytest.mark.slow
def test_power_loss_during_stream(tmp_path: Path) -> None:
    root, data = tmp_path / "root", tmp_path / "events.csv"
    events(60, 0).to_csv(data, index=False)
    model = {"dim": 4, "time_dim": 2, "static": "random", "static_dim": 2}
    settings = {"model": model, "batch_size": 20, "loop": {**LOOP, "epochs": 1}}
    hopstate.fit("ctdg-ssm", data, out=root / "run", config=settings)
    tables = [events(10, 60), events(10, 70), events(10, 80)]
    hopstate.stream(root / "run", tables[0])
    with Disk(root) as noted:
        second = hopstate.stream(root / "run", tables[1])
    third = hopstate.stream(root / "run", tables[2])

    def check() -> None:
        with contextlib.suppress(DataError):  # these events have been streamed already
            pd.testing.assert_frame_equal(hopstate.stream(root / "run", tables[1]), second)
        pd.testing.assert_frame_equal(hopstate.stream(root / "run", tables[2]), third)

    assert every(noted, check) > 2
