"""`hopstate export --check`: a program agrees with its run, and the program of another run is rejected."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hopstate
from hopstate.cli.main import main
from hopstate.data.graph import Graph
from hopstate.datasets.generators import stochastic_block_model
from hopstate.errors import ConfigError, DataError, FormatError, HopstateError
from hopstate.methods import MODULES, get_method
from hopstate.methods.message_passing.backbones import BACKBONES
from hopstate.runs import export
from hopstate.runs.export import export_run, max_difference, program_queries, run_program, trace
from hopstate.testing.conformance import PROGRAM
from made_events import LOOP, RANDOM, SMALL, repeating
from made_graphs import rings

ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
NODES = {"model.dim": 8, "loop.epochs": 1, "loop.progress": False, "loop.device": "cpu"}
WALKS = {"model.state_dim": 4, "encoding.size": 3, "walks.max_length": 2, "walks.repeats": 1, "walks.walks": 2}
HOPS = {"model.num_heads": 2, "tokens.num_hops": 2, "tokens.eigenvectors": 0}
OWN: dict[str, dict[str, Any]] = {
    "gmn": WALKS, "gmn-graphs": WALKS, "nagphormer": HOPS, "gat": {"model.heads": 2},
    "dygformer": {"model.max_length": 6, "model.channel_dim": 4, "model.time_dim": 8, "model.out_dim": 12},
    "dyg-mamba": {"model.channel_dim": 4, "model.time_dim": 8, "model.out_dim": 12, "history.max_length": 4},
    "dyg-mamba-nodes": {"model.channel_dim": 4, "model.time_dim": 8, "model.out_dim": 12, "history.max_length": 4},
    "ctdg-ssm-nodes": {"model.dim": 6, "model.time_dim": 4, "batch_size": 16},
}  # fmt: skip
QUICK = ("gin-graphs", "dyg-mamba", "ctdg-ssm")  # one of each kind
TYPED = [name for name, one in BACKBONES.items() if one.edges == "relations"]  # have no program
EXPORTED = [name for name in MODULES if callable(get_method(name).export) and name not in TYPED]
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in EXPORTED),
    ("gcn", {"batching.kind": "cluster", "batching.num_clusters": 3, "batching.clusters_per_batch": 1}),
    ("gcn", {"task": "link"}),
    ("nagphormer", {"task": "link"}),
    ("gmn", {"task": "link", "walks.eval_samples": 2}),
    ("gmn-graphs", {"walks.eval_samples": 2}),
    (
        "ctdg-ssm",
        {"model.static": "random", "model.static_dim": 3, "model.pair_dim": 5, "model.node_time_deltas": True},
    ),
]


def graph() -> Graph:
    return stochastic_block_model(num_nodes=60, num_classes=3, num_features=5, seed=1)


def data_of(method: str) -> Any:
    kind = get_method(method).data
    if kind == "graph":
        return graph()
    if kind == "graphs":
        return rings()
    events = repeating(200)
    return events.with_(labels=np.arange(len(events)) % 2) if method.endswith("-nodes") else events


def trained(method: str, folder: Path, **settings: Any) -> Path:
    events = get_method(method).data == "events"
    small = {**LOOP, **({} if method.endswith("-nodes") else RANDOM), **SMALL.get(method, {})} if events else NODES
    config = {**small, **OWN.get(method, {}), **settings}
    return hopstate.fit(method, data_of(method), out=folder, config=config).path


def check(method: str, folder: Path, to: Any, **settings: Any) -> None:
    run = trained(method, folder / "run", **settings)
    opened = hopstate.load(run, data=data_of(method))
    assert opened.record is not None
    export_run(run, to, folder / "program")
    found = hopstate.check_program(run, folder / "program")
    metadata = json.loads((folder / "program" / "export.json").read_text())
    assert list(found.differences) == [port["name"] for port in metadata["outputs"]]
    assert found.num_queries > 1
    assert max(found.differences.values()) <= PROGRAM


@pytest.mark.slow
@pytest.mark.parametrize("to", ["torch", pytest.param("onnx", marks=pytest.mark.skipif(not ONNX, reason="needs onnx"))])
@pytest.mark.parametrize(("method", "settings"), CASES, ids=str)
def test_programs_of_every_method_agree_with_their_runs(
    method: str, settings: dict[str, Any], to: str, tmp_path: Path
) -> None:
    check(method, tmp_path, to, **settings)


@pytest.mark.parametrize("method", QUICK)
def test_the_network_of_a_program_agrees_with_the_run(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a file, as a module and traced."""
    run, specs, export_spec = trained(method, tmp_path / "run"), [], export.export_spec
    opened = hopstate.load(run, data=data_of(method))
    assert opened.record is not None
    keep = lambda *given, **how: specs.append(export_spec(*given, **how)) or specs[0]  # noqa: E731
    monkeypatch.setattr(export, "export_spec", keep)
    with program_queries(run, sample=True) as queries:
        expected, inputs = queries.expected(), tuple(map(torch.from_numpy, queries.inputs.values()))
        specs[0].module.eval()
        answered = [module(*inputs) for module in (specs[0].module, trace(specs[0]).module())]
    name = specs[0].outputs[0].name
    for found in answered:
        first = found[0] if isinstance(found, tuple) else found
        assert max_difference(name, first.detach().numpy(), expected[name]) <= PROGRAM
    assert queries.count > 1
    assert np.ptp(expected[name]) > 0


def test_the_command_reports_the_largest_difference_and_rejects_other_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (0, 1):
        config = {**NODES, "loop.seed": seed}
        hopstate.fit("gcn", "sbm", out=tmp_path / f"run{seed}", config=config)
    run, out = str(tmp_path / "run0"), str(tmp_path / "program")
    assert main(["export", run, "--to", "torch", "--out", out, "--check", "--json"]) == 0
    check = json.loads(capsys.readouterr().out)["check"]
    assert check["differences"]["output"] <= check["tolerance"] == PROGRAM
    with pytest.raises(HopstateError, match="run1"):
        hopstate.check_program(tmp_path / "run1", out)
    metadata = json.loads((tmp_path / "program" / "export.json").read_text())
    (tmp_path / "program" / "export.json").write_text(json.dumps(metadata | {"method": "mlp"}))
    with pytest.raises(ConfigError, match=r"mlp.*gcn"):
        hopstate.check_program(run, out)
    shutil.copy(tmp_path / "run0" / "result.json", tmp_path / "program" / "export.json")
    with pytest.raises(ConfigError, match="program"):
        hopstate.check_program(run, out)


@pytest.mark.slow
def test_user_queries_are_checked(tmp_path: Path) -> None:
    run = trained("dyg-mamba-nodes", tmp_path / "run")
    assert hopstate.export_inputs(run, [3, 1, 3])["lengths"].shape == (3,)
    with pytest.raises(DataError):
        hopstate.export_inputs(run, [3, 99])


def test_nan_counts_as_a_difference() -> None:
    assert max_difference("output", np.array([1.0, np.nan]), np.array([1.0, 2.0])) == np.inf
    assert max_difference("output", np.array([101.0]), np.array([100.0])) == pytest.approx(1 / 101)
    assert max_difference("score", np.array([[0.5]]), np.array([0.25])) == 0.25
    assert max_difference("output", np.zeros((0, 2)), np.zeros((0, 2))) == 0


class Hostile:
    """Makes a folder when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.place),)


def test_a_program_is_never_unpickled(tmp_path: Path) -> None:
    whole, bad, done = tmp_path / "whole.pt2", tmp_path / "bad.pt2", tmp_path / "done"
    torch.export.save(torch.export.export(torch.nn.Linear(2, 1), (torch.ones(3, 2),)), whole)
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(bad, "w") as made:
        for name in source.namelist():
            payload = io.BytesIO(source.read(name))
            if name.endswith("sample_inputs/model.pt"):
                torch.save(Hostile(done), payload := io.BytesIO())
            made.writestr(name.replace("whole/", "bad/", 1), payload.getvalue())
    assert run_program(whole, {"x": np.ones((3, 2), np.float32)})[0].shape == (3, 1)
    with pytest.raises(FormatError, match=r"bad\.pt2"):
        run_program(bad, {"x": np.ones((3, 2), np.float32)})
    assert not done.exists()
