"""Curves of a run are saved with its result, or not at all."""

from pathlib import Path

import pytest
import torch

from hopstate.errors import CheckpointError
from hopstate.training.checkpoint import Checkpoint, load_checkpoint, write_result
from hopstate.training.run_folder import CURVES, RunFolder, load_curves


def test_curves_are_saved_with_the_result_or_not_at_all(tmp_path: Path) -> None:
    weights, marker, curves = tmp_path / "model.safetensors", tmp_path / "result.json", tmp_path / CURVES
    made = Checkpoint(tensors={"model": {"w": torch.ones(2)}})
    with pytest.raises(UnicodeEncodeError):
        write_result(weights, made, marker, "\ud800", {curves: "{}"})  # half of a surrogate pair: cannot be encoded
    with pytest.raises(UnicodeEncodeError):
        write_result(weights, made, marker, "{}", {curves: "\ud800"})
    assert not list(tmp_path.iterdir())
    write_result(weights, made, marker, "{}", {curves: "[1]"})
    assert curves.read_text() == "[1]"
    assert load_checkpoint(weights).tensors["model"]["w"].tolist() == [1, 1]


@pytest.mark.parametrize("limits", ["[0.1]", "[0.1, true]", '"0.1 to 0.2"', "0.1", "[0.1, null]"])
def test_invalid_intervals_are_rejected(limits: str, tmp_path: Path) -> None:
    (tmp_path / CURVES).write_text('{"intervals": {"accuracy": ' + limits + "}}")
    with pytest.raises(CheckpointError, match=r"curves\.json"):
        load_curves(RunFolder(tmp_path))
