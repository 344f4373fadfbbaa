"""Small link methods, and a fit that is interrupted in its second epoch and resumed."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from hopstate.training.checkpoint import FitResult, load_checkpoint
from hopstate.training.run_folder import RunFolder
from hopstate.training.trainer import Trainer

WIDTHS = {"model.channel_dim": 4, "model.time_dim": 6, "model.out_dim": 6}
SMALL: dict[str, dict[str, Any]] = {
    "ctdg-ssm": {"model.dim": 6, "model.time_dim": 6},
    "dyg-mamba": {**WIDTHS, "history.max_length": 6},
    "dygformer": {**WIDTHS, "model.max_length": 6},
    "graphmixer": {"model.num_links": 4, "model.dim": 6, "model.time_dim": 6, "model.out_dim": 4},
}


def resumes_to_the_same_bits(make: Callable[[], tuple[Any, Any]], method: str, home: Path) -> FitResult:
    """Check that an interrupted and resumed fit equals an uninterrupted one in metrics and weights; return its result.

    Args:
        make: makes a task and its configuration of two epochs or more.
        method: its name.
        home: where runs lie.
    """
    ends = []
    for cut in (False, True):
        folder = RunFolder.create(home / f"{cut}", {"method": method, "data": "x", "loop": {}})
        if cut:
            stopped, config = make()
            trainer = Trainer(stopped, config.loop, folder, method=method)
            trainer._step = partial(_stop_after, trainer, trainer._step)  # type: ignore[method-assign]
            with pytest.raises(KeyboardInterrupt):
                trainer.fit()
        whole, config = make()
        result = Trainer(whole, config.loop, folder, method=method).fit(resume=cut)
        ends.append((result.metrics, load_checkpoint(folder.weights).tensors["model"]))
    assert ends[0][0] == ends[1][0]
    assert all(torch.equal(ends[0][1][name], ends[1][1][name]) for name in ends[0][1])
    return result


def _stop_after(trainer: Trainer, step: Any, batch: Any, count: int) -> None:
    step(batch, count)
    if trainer.progress.epoch == 1 and trainer.progress.step == 2:
        trainer.save()
        raise KeyboardInterrupt
