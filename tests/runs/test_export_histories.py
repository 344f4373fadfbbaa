"""Programs of history models give the logits of their runs, for any number of pairs and tokens."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from hopstate.errors import ConfigError
from hopstate.methods import get_method
from hopstate.runs.export import export_run
from hopstate.runs.load import load_run
from hopstate.runs.run import fit
from hopstate.testing.conformance import PROGRAM
from hopstate.tokens.pair_features import NAMES
from made_events import LOOP, small_run, table

ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
FORMER = {"model.max_length": 8, "model.channel_dim": 4, "model.time_dim": 8, "model.out_dim": 12}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("dyg-mamba", {"model.pair_features": True}),
    ("dygformer", FORMER | {"model.patch_size": 2}),
    ("graphmixer", {}),
]
MORE: list[tuple[str, dict[str, Any]]] = [
    ("dyg-mamba", {"model.encoders": "independent", "model.block.step": "both", "model.block.conv_width": 0}),
    ("dyg-mamba", {"model.block.step_function": "unnormalized", "model.block.bidirectional": False}),
    ("dyg-mamba", {"model.block.bc_source": "fixed", "model.block.gate": False, "model.cooccurrence": False}),
    ("dygformer", FORMER | {"model.pair_features": True}),
    ("graphmixer", {"model.pair_features": True}),
]


def queries_and_outputs(method: str, run: Path, count: int) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return a program's inputs for the last pairs of a run's data, and the logits of the run."""
    with load_run(run, device="cpu") as (_, task), torch.no_grad():
        stream, rows = task.stream, np.arange(len(task.stream) - count, len(task.stream))
        tokens = task.source.inputs.pairs(stream.src[rows], stream.dst[rows], stream.t[rows])
        form = get_method(method).export(task)

        return form.filled(tokens), task.model(tokens)


def answer(path: Path, inputs: dict[str, Tensor]) -> Tensor:
    """Return the logits or node outputs of a program."""
    if path.suffix == ".pt2":
        found = torch.export.load(path).module()(*inputs.values())
        return found if isinstance(found, Tensor) else found[0]
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {name: x.numpy() for name, x in inputs.items()})[0])


def same_answers(method: str, folder: Path, to: Any, **settings: object) -> None:
    run = small_run(method, folder, table(0, 160, amount=True), **settings).path
    path = export_run(run, to, folder / "program")
    kept = json.loads((path.parent / "export.json").read_text())
    for count in (0, 1, 5):
        inputs, expected = queries_and_outputs(method, run, count)
        assert [str(x.dtype) for x in inputs] == [f"torch.{port['dtype']}" for port in kept["inputs"]]
        named = dict(zip([port["name"] for port in kept["inputs"]], inputs, strict=True))
        torch.testing.assert_close(answer(path, named), expected, rtol=PROGRAM, atol=PROGRAM)


FILES = [
    pytest.param("torch", marks=pytest.mark.slow),
    pytest.param("onnx", marks=[pytest.mark.slow, pytest.mark.skipif(not ONNX, reason="needs onnx")]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "settings"), [*CASES, *MORE], ids=str)
def test_a_program_gives_the_logits_of_the_run(method: str, settings: dict[str, object], tmp_path: Path) -> None:
    same_answers(method, tmp_path, "torch", **settings)


@pytest.mark.slow
@pytest.mark.skipif(not ONNX, reason="needs onnx, onnxscript and onnxruntime, which are not installed")
@pytest.mark.parametrize(("method", "settings"), CASES, ids=str)
def test_onnx_gives_the_logits_of_the_run(method: str, settings: dict[str, object], tmp_path: Path) -> None:
    same_answers(method, tmp_path, "onnx", **settings)


def test_cross_attention_is_rejected_by_name(tmp_path: Path) -> None:
    run = small_run("dyg-mamba", tmp_path, table(0, 40), **{"model.cross_attention": 2, "loop.epochs": 0}).path
    with pytest.raises(ConfigError, match=r"model\.cross_attention"):
        export_run(run, "torch", tmp_path / "program")
    assert not (tmp_path / "program").exists()


@pytest.mark.parametrize("to", FILES)
def test_exported_scores_of_a_given_memory_state(to: Any, tmp_path: Path) -> None:
    settings = {"model.pair_features": True, "model.static": "random", "model.static_dim": 3, "model.pair_dim": 5}
    run = small_run(
        "ctdg-ssm", tmp_path, **settings, **{"model.node_time_deltas": True, "model.embedding_norm": True}
    ).path
    path = export_run(run, to, tmp_path / "program")
    with load_run(run, device="cpu") as (_, task), torch.no_grad():
        model = task.model
        state = model.initial_state(9)
        state.output.copy_(torch.randn(state.output.shape))
        source, target, gap = torch.tensor([0, 4, 8, 1]), torch.tensor([3, 3, 2, 7]), torch.rand(4, 3)
        pair = torch.randn(4, len(NAMES))
        pair[0, 2] = torch.nan
        expected = model.link_logits(state, source, target, torch.cat([gap, pair], 1))
        ends = torch.stack([source, target])
        static = model.static(ends.flatten()).view(2, 4, -1)
        inputs = {"memory": state.output[ends], "static": static, "gap": gap, "pair": pair}
    torch.testing.assert_close(answer(path, inputs), expected, rtol=PROGRAM, atol=PROGRAM)


def labeled(classes: int) -> pd.DataFrame:
    """Return events with an amount and a label of their source, one of some classes."""
    events = table(0, 160, amount=True)
    return events.assign(label=events["src"].str[1:].astype(int) % classes)


def inputs_of(path: Path, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the inputs of a program among the given arrays, in its order."""
    ports = json.loads((path.parent / "export.json").read_text())["inputs"]
    assert [str(given[port["name"]].dtype) for port in ports] == [f"torch.{port['dtype']}" for port in ports]
    return {port["name"]: given[port["name"]] for port in ports}


@pytest.mark.parametrize("to", FILES)
@pytest.mark.parametrize("classes", [2, 3])
def test_exported_node_outputs_of_histories(classes: int, to: Any, tmp_path: Path) -> None:
    small = {"model.channel_dim": 4, "model.time_dim": 8, "model.out_dim": 12, "history.max_length": 6}
    run = fit("dyg-mamba-nodes", labeled(classes), out=tmp_path / "run", config={**LOOP, **small}).path
    path = export_run(run, to, tmp_path / "program")
    with load_run(run, device="cpu") as (_, task), torch.no_grad():
        for count in (0, 1, 7):
            rows = np.arange(len(task.stream) - count, len(task.stream))
            tokens = task.source.inputs.nodes(task.stream.src[rows], task.stream.t[rows])
            given = {"lengths": tokens.lengths, "gaps": tokens.gaps, "spans": tokens.spans}
            inputs = inputs_of(path, given | {"edge_attr": tokens.edge_attr})
            expected = task.model(tokens)
            assert expected.shape == (count, 1 if classes == 2 else classes)
            torch.testing.assert_close(answer(path, inputs), expected, rtol=PROGRAM, atol=PROGRAM)


@pytest.mark.parametrize("to", FILES)
@pytest.mark.parametrize("classes", [2, 3])
def test_exported_node_outputs_of_a_given_memory_state(classes: int, to: Any, tmp_path: Path) -> None:
    small = {"model.dim": 6, "model.time_dim": 4, "batch_size": 16, "model.static": "random", "model.static_dim": 3}
    run = fit("ctdg-ssm-nodes", labeled(classes), out=tmp_path / "run", config={**LOOP, **small}).path
    path = export_run(run, to, tmp_path / "program")
    with load_run(run, device="cpu") as (_, task), torch.no_grad():
        state = task.model.initial_state(len(task.stream))
        state.output.copy_(torch.randn(state.output.shape))
        nodes, gap = torch.tensor([0, 4, 8, 1]), torch.rand(4, 1)
        given = {"memory": state.output[nodes][None], "static": task.model.static(nodes)[None], "gap": gap}
        expected = task.model.node_logits(state, nodes, gap)
    assert expected.shape == (4, 1 if classes == 2 else classes)
    torch.testing.assert_close(answer(path, inputs_of(path, given)), expected, rtol=PROGRAM, atol=PROGRAM)
