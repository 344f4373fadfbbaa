"""Members of an ensemble, loaded from their saved settings, combined as logit p = b + sum_i w_i logit p_i.

Source: Wolpert, Stacked generalization, Neural Networks 5 (1992).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from hopstate.errors import CheckpointError, ConfigError, idle_reset
from hopstate.methods import method_of_run
from hopstate.methods.config import config_from
from hopstate.methods.method import Context
from hopstate.training.checkpoint import load_checkpoint, load_weights
from hopstate.training.run_folder import RunFolder


@dataclass(frozen=True, eq=False)
class Member:
    """A member run: its name, settings, and task with loaded weights."""

    name: str
    config: Any
    task: Any


class StackedModel(nn.Module):
    """Logistic stacking: frozen member networks, and weights (M,) and bias (1,) of their log-odds."""

    def __init__(self, members: list[Member]) -> None:
        super().__init__()
        self.networks = nn.ModuleList([member.task.model for member in members]).requires_grad_(False)
        self.weight = nn.Buffer(torch.ones(len(members), dtype=torch.float64))
        self.bias = nn.Buffer(torch.zeros(1, dtype=torch.float64))

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Fit the weights to log-odds x (Q, M) and labels y (Q,) of pairs."""
        from sklearn.linear_model import LogisticRegression

        center, scale = x.mean(0), x.std(0) + 1e-12
        regression = LogisticRegression(max_iter=1000).fit((x - center) / scale, y)
        weight = regression.coef_[0] / scale
        self.weight.copy_(torch.from_numpy(weight))
        self.bias.fill_(float(regression.intercept_[0] - center @ weight))

    def contributions(self, x: np.ndarray) -> np.ndarray:
        """Return (Q, M) contributions of log-odds x (Q, M) to the logits."""
        return x * self.weight.double().cpu().numpy()

    def logits(self, x: np.ndarray) -> np.ndarray:
        """Return (Q,) logits of log-odds x (Q, M)."""
        return self.contributions(x).sum(1) + float(self.bias)


def members_of(record: Any, config: Any, context: Context) -> list[Member]:
    """Load the members of an ensemble. Their settings are saved in its data.json."""
    begun = context.begun()
    summary = [_describe_run(run) for run in config.runs] if begun is None else begun.get("members")
    if not isinstance(summary, list) or not all(isinstance(one, dict) and len(one) == 3 for one in summary):
        raise CheckpointError(f"{context.run / 'data.json'} lacks the members of the ensemble; make it again")
    if len(summary) < 2:
        raise ConfigError(f"runs: an ensemble combines at least two; got {len(summary)} (hopstate ensemble RUN RUN)")
    context.noted["members"] = summary
    return [_load_member(one, summary[0], record, config, context) for one in summary]


def _describe_run(run: str) -> dict[str, Any]:
    folder = RunFolder.open(run)
    if not folder.weights.is_file():
        raise CheckpointError(f"{run} was not finished; continue it with --resume --out {run}")
    return {"run": str(folder.path.resolve()), "settings": folder.settings(), "data": folder.read_json("data.json")}


def _load_member(summary: dict[str, Any], first: dict[str, Any], record: Any, config: Any, context: Context) -> Member:
    run, settings = Path(summary["run"]), dict(summary["settings"])
    method = method_of_run(settings.pop("method", None), str(run / "config.json"))
    with idle_reset():
        member_config = config_from(method, settings)
    differences = [
        f"read.{name}" for name, value in vars(config.read).items() if getattr(member_config.read, name, value) != value
    ]
    differences += ["split"] if member_config.split != config.split else []
    differences += ["data"] if summary["data"]["content_hash"] != first["data"]["content_hash"] else []
    if (
        differences
        or type(member_config.split) is not type(config.split)
        or getattr(member_config, "task", "link") != "link"
    ):
        raise ConfigError(f"{run} and {first['run']} differ in {', '.join(differences) or 'what they predict'}")
    loop = replace(config.loop, precision=member_config.loop.precision, seed=member_config.loop.seed, progress=False)
    changes, is_new, folder = {"data": config.data, "loop": loop}, context.trained is None, context.run
    if hasattr(member_config, "evaluation"):
        changes["evaluation"] = replace(config.evaluation, batch_size=member_config.evaluation.batch_size)
    elif is_new:
        folder = run  # of a graph, the folder says which links are of which split
    with idle_reset():
        build = replace(context, run=folder, trained=summary["data"], noted={})
        task = method.build(record, replace(member_config, **changes), build)
    if member_config.loop.precision == "64":
        task.model.double()
    if is_new:
        weights = RunFolder.open(run).weights
        load_weights(task.model, load_checkpoint(weights).tensors.get("model", {}), str(weights))
    return Member(f"{method.name} ({run.name})", member_config, task)
