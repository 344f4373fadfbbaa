"""A backbone trained on links and taken up by a classifier of nodes, as published: frozen, and a head trained on it.

Source: Yu et al. 2023, arXiv:2303.13047 (DyGLib's node classification); DyG-Mamba, arXiv:2408.06966, section 5.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from hopstate.data.events import EventStream
from hopstate.errors import CheckpointError, HopstateWarning
from hopstate.methods.method import Context
from hopstate.methods.shared.event_nodes import EventNodeRun
from hopstate.training.checkpoint import load_checkpoint
from hopstate.training.run_folder import RunFolder, flatten

PAIRS = ("model.pair_dim", "model.node_gaps", "model.pair_history")  # of a decoder of pairs alone
SHARED = ("model.", "history.", "num_neighbors", "gap_unit", "deletions", "cut_ties")


def suit_init(record: EventStream, config: EventNodeRun, metrics: tuple[str, ...], *, links: str) -> Mapping[str, Any]:
    """Return the settings that a classifier shares with the run that it begins from, for what a user does not give.

    Args:
        record, metrics: not looked at.
        config: whose `init` names the run.
        links: the method that it must be of.
    """
    if config.init is None:
        return {}
    known = flatten(config)
    settings = flatten(_run(config.init, links).settings())
    shared = {k: v for k, v in settings.items() if k in known and k.startswith(SHARED) and k not in PAIRS}
    return {k: v for k, v in shared.items() if not isinstance(v, (list, dict))}


def init_context(config: EventNodeRun, context: Context, *, links: str) -> Context:
    """Return a context under which a model is built as that of the run it begins from: its widths and its clock."""
    if config.init is None or context.trained is not None:
        return context
    return replace(context, trained=_run(config.init, links).read_json("data.json"))


def take_backbone(
    model: nn.Module, config: EventNodeRun, context: Context, *, links: str, head: tuple[str, ...]
) -> list[nn.Module]:
    """Copy the weights of a run on links into a classifier, all but the head's, and return the parts that are frozen.

    Args:
        model: the classifier.
        config: with `init` and `freeze`.
        context: of the build; a trained model is not touched.
        links: the method of the run.
        head: names of the parts that are trained anew.
    """
    if config.init is None:
        return []
    if context.trained is None:
        folder = _run(config.init, links)
        weights = load_checkpoint(folder.weights).tensors.get("model", {})
        weights = {name.replace("encoders.0.", "encoder."): tensor for name, tensor in weights.items()}
        own = {name: t for name, t in model.state_dict().items() if name.split(".")[0] not in head}
        wrong = [name for name, t in own.items() if name not in weights or weights[name].shape != t.shape]
        if wrong:
            raise CheckpointError(
                f"{config.init} has no weights of this shape for {', '.join(wrong[:3])}; leave out settings of the "
                "model, which are taken from that run"
            )
        model.load_state_dict({name: weights[name] for name in own}, strict=False)
        if any(name.startswith(("encoder.count.", "encoders.1.")) for name in weights):
            warnings.warn(
                f"{config.init} encodes what two nodes have in common, which one node alone has not: that encoding is "
                "left out here; train it with --model.cooccurrence false for the same backbone",
                HopstateWarning,
                stacklevel=3,
            )
    parts = [part for name, part in model.named_children() if name not in head] if config.freeze else []
    for part in parts:
        part.requires_grad_(False)
    return parts


def _run(path: str, links: str) -> RunFolder:
    folder = RunFolder.open(path)
    found = folder.read_json("config.json").get("method")
    if found != links:
        raise CheckpointError(f"{path} is a run of {found}; a backbone for this method comes from one of {links}")
    return folder
