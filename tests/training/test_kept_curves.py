"""Curves of a run come with its result, or not at all."""

from pathlib import Path

import pytest
import torch

from hopstate.training.checkpoint import Checkpoint, load_checkpoint, write_result
from hopstate.training.kept_curves import CURVES


def test_curves_come_with_the_result_or_not_at_all(tmp_path: Path) -> None:
    weights, marker, curves = tmp_path / "model.safetensors", tmp_path / "result.json", tmp_path / CURVES
    made = Checkpoint(tensors={"model": {"w": torch.ones(2)}})
    with pytest.raises(UnicodeEncodeError):
        write_result(weights, made, marker, "\ud800", {curves: "{}"})  # half of a character: no file can hold it
    with pytest.raises(UnicodeEncodeError):
        write_result(weights, made, marker, "{}", {curves: "\ud800"})
    assert not list(tmp_path.iterdir())
    write_result(weights, made, marker, "{}", {curves: "[1]"})
    assert curves.read_text() == "[1]"
    assert load_checkpoint(weights).tensors["model"]["w"].tolist() == [1, 1]
