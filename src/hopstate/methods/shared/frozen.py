"""A model of a finished run, taken up frozen by another method on the same events.

Its weights are kept with the other's, and what it was built from with what the other's run remembers of its data, so
that the other does without the folder it came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from torch import nn

from hopstate.data.events import EventStream
from hopstate.errors import CheckpointError, ConfigError, idle_reset
from hopstate.methods import get_method
from hopstate.methods.method import Context
from hopstate.methods.settings import config_from, with_earlier
from hopstate.methods.shared.link import JudgedRun
from hopstate.training.checkpoint import load_checkpoint, load_weights
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.link import LinkTask


@dataclass(frozen=True, eq=False, kw_only=True)
class FrozenRun:
    """A model that is no longer trained, as its own method builds it.

    Args:
        config: its settings, with the data, reading and split of what takes it up.
        task: its own.
        kept: from which it is built again: its settings, and what its run remembers of its data.
    """

    config: Any
    task: LinkTask
    kept: Mapping[str, Any]

    @property
    def model(self) -> nn.Module:
        """The network."""
        return self.task.model


def frozen_run(
    stream: EventStream,
    config: JudgedRun,
    run: str | None,
    context: Context,
    *,
    what: Literal["encodings", "memory"],
    methods: Sequence[str],
) -> FrozenRun | None:
    """Return the model of a finished run over the stream of another config; None where no run is named.

    Of a trained run, and of one that is resumed without the other's folder, the weights are not read here: they are
    among its own.

    Args:
        stream, config, context: of the build that takes the model up.
        run: the folder.
        what: the setting that names it, under which it is kept.
        methods: of which it may be.

    Raises:
        ConfigError: a run of another method, or of another split, reading or set of nodes than the config's; one that
            was trained again since the run that is resumed began.
        CheckpointError: it is not finished, or damaged.
    """
    if run is None:
        return None
    own = context.begun()
    before = None if own is None else _facts(own.get(what), f"the run lacks the model of its {what}")
    folder = None
    if context.trained is None and not (before is not None and _stands_alone(run, context)):
        folder = RunFolder.open(run)
        if not folder.weights.is_file():
            raise CheckpointError(f"{run} was not finished; continue it with resume (--resume --out {run})")
        found = {"settings": folder.settings(), "data": folder.read_json("data.json")}
        if before is not None and found != before:
            raise ConfigError(f"{run} was trained again since this run began; give it another --out")
        before = found
    kept = _facts(before, f"{run} is no finished run")
    settings = dict(kept["settings"])
    name = settings.pop("method", None)
    if name not in methods:
        raise ConfigError(f"--{what} takes a run of {', '.join(methods)}; {run} is one of {name}")
    method = get_method(str(name))
    with idle_reset():
        theirs = config_from(method, with_earlier(method, settings))
    if folder is not None:
        _check_same(config, run, theirs, kept["data"], stream)
    judged = replace(config.evaluation, batch_size=theirs.evaluation.batch_size)  # which moves a memory
    theirs = replace(theirs, data=config.data, read=config.read, split=config.split, evaluation=judged)
    task = cast("LinkTask", method.build(stream, theirs, replace(context, trained=kept["data"])))
    if folder is not None:
        load_weights(task.model, load_checkpoint(folder.weights).tensors.get("model", {}), str(folder.weights))
    task.model.requires_grad_(False)
    return FrozenRun(config=theirs, task=task, kept=kept)


def _stands_alone(run: str, context: Context) -> bool:
    """Return whether a run that is resumed has the weights itself, and the folder that they came from is gone."""
    own = RunFolder(str(context.run))
    return not RunFolder(run).path.is_dir() and own.checkpoint.is_file()


def _facts(kept: Any, wrong: str) -> Mapping[str, Any]:
    if not isinstance(kept, dict) or not all(isinstance(kept.get(name), dict) for name in ("settings", "data")):
        raise CheckpointError(f"{wrong}: it is damaged; train again")
    return kept


def _check_same(config: JudgedRun, run: str, own: Any, data: Mapping[str, Any], stream: EventStream) -> None:
    """Raise ConfigError where a model may have been trained on what another is judged by."""
    if own.split != config.split:
        raise ConfigError(
            f"{run} was trained on another split of the events; give its split here too, or train it on this one, or "
            "its training events may be this run's test events"
        )
    names = ("scale", "missing", "columns")
    wrong = [f"read.{name}" for name in names if getattr(config.read, name) != getattr(own.read, name)]
    found = {"num_nodes": stream.num_nodes, "feature_dims": dict(stream.feature_dims)}
    wrong += [name for name, value in found.items() if data.get(name, value) != value]
    if wrong:
        raise ConfigError(f"{run} was trained on other data, or on the same read in another way: {', '.join(wrong)}")


__all__ = ["FrozenRun", "frozen_run"]
