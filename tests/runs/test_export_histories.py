"""Programs of models of histories give the runs' own logits, for any number of pairs and tokens."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hopstate.errors import ConfigError
from hopstate.methods import get_method
from hopstate.runs.export import export_run
from hopstate.runs.load import load_run
from hopstate.testing.asserts import F32
from hopstate.tokens.pair_features import NAMES
from made_events import small_run, table

ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
FORMER = {"model.max_length": 8, "model.channel_dim": 4, "model.time_dim": 8, "model.out_dim": 12}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("dyg-mamba", {"model.pair_history": True}),
    ("dygformer", FORMER | {"model.patch_size": 2, "model.padding": "masked"}),
    ("graphmixer", {}),
]
MORE: list[tuple[str, dict[str, Any]]] = [
    ("dyg-mamba", {"model.encoders": "independent", "model.block.step": "both", "model.block.conv_width": 0}),
    ("dyg-mamba", {"model.block.step_function": "unnormalized", "model.block.bidirectional": False}),
    ("dyg-mamba", {"model.block.maps": "fixed", "model.block.gate": False, "model.cooccurrence": False}),
    ("dygformer", FORMER | {"model.pair_history": True}),
    ("graphmixer", {"model.pair_history": True}),
]


def asked(method: str, run: Path, count: int) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return a program's inputs for the last pairs of a run's data, and the run's own logits."""
    with load_run(run, device="cpu") as (_, task), torch.no_grad():
        stream, rows = task.stream, np.arange(len(task.stream) - count, len(task.stream))
        tokens = task.source.inputs.pairs(stream.src[rows], stream.dst[rows], stream.t[rows])
        form = get_method(method).export(task)
        assert form.fill is not None
        return form.fill(tokens), task.model(tokens)


def answer(path: Path, inputs: dict[str, Tensor]) -> Tensor:
    """Return the logits that a program says."""
    if path.suffix == ".pt2":
        return torch.export.load(path).module()(*inputs.values())[0]
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {name: x.numpy() for name, x in inputs.items()})[0])


def same_answers(method: str, folder: Path, to: Any, **settings: object) -> None:
    run = small_run(method, folder, table(0, 160, amount=True), **settings).path
    path = export_run(run, to, folder / "program")
    told = json.loads((path.parent / "export.json").read_text())
    for count in (0, 1, 5):
        inputs, wanted = asked(method, run, count)
        assert [str(x.dtype) for x in inputs] == [f"torch.{port['dtype']}" for port in told["inputs"]]
        named = dict(zip([port["name"] for port in told["inputs"]], inputs, strict=True))
        torch.testing.assert_close(answer(path, named), wanted, rtol=F32, atol=F32)


@pytest.mark.parametrize(
    ("method", "settings"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)], ids=str
)
def test_a_program_gives_the_runs_own_logits(method: str, settings: dict[str, object], tmp_path: Path) -> None:
    same_answers(method, tmp_path, "torch", **settings)


@pytest.mark.skipif(not ONNX, reason="needs onnx, onnxscript and onnxruntime, which are not installed")
@pytest.mark.parametrize(
    ("method", "settings"), [CASES[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[1:])], ids=str
)
def test_onnx_gives_the_runs_own_logits(method: str, settings: dict[str, object], tmp_path: Path) -> None:
    same_answers(method, tmp_path, "onnx", **settings)


def test_attention_between_the_ends_is_refused_by_name(tmp_path: Path) -> None:
    run = small_run("dyg-mamba", tmp_path, **{"model.cross_attention": 2}).path
    with pytest.raises(ConfigError, match=r"model\.cross_attention"):
        export_run(run, "torch", tmp_path / "program")
    assert not (tmp_path / "program").exists()


@pytest.mark.parametrize("to", ["torch", *(["onnx"] if ONNX else [])])
def test_what_a_memory_says_in_a_given_state(to: Any, tmp_path: Path) -> None:
    settings = {"model.pair_history": True, "model.static": "random", "model.static_dim": 3, "model.pair_dim": 5}
    run = small_run("ctdg-ssm", tmp_path, **settings, **{"model.node_gaps": True, "model.read_norm": True}).path
    path = export_run(run, to, tmp_path / "program")
    with load_run(run, device="cpu") as (_, task), torch.no_grad():
        model = task.model
        state = model.initial_state(9)
        state.output.copy_(torch.randn(state.output.shape))
        source, target, gap = torch.tensor([0, 4, 8, 1]), torch.tensor([3, 3, 2, 7]), torch.rand(4, 3)
        pair = torch.randn(4, len(NAMES))
        pair[0, 2] = torch.nan
        wanted = model.link_logits(state, source, target, torch.cat([gap, pair], 1))
        ends = torch.stack([source, target])
        static = model.static(ends.flatten()).view(2, 4, -1)
        inputs = {"memory": state.output[ends], "static": static, "gap": gap, "pair": pair}
    torch.testing.assert_close(answer(path, inputs), wanted, rtol=F32, atol=F32)
