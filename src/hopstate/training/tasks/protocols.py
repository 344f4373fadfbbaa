"""What the loop and what is built on it ask of a task; what moves through time is in `streaming.protocols`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypedDict, TypeVar, runtime_checkable

import numpy as np
from torch import Tensor, nn

from hopstate.streaming.protocols import HistoryModel, MemoryModel, Replayable

if TYPE_CHECKING:
    from hopstate.data.dates import Clock
    from hopstate.data.events import EventStream
    from hopstate.training.tasks.target import Target


BatchT = TypeVar("BatchT")  # nested tuples or dicts of tensors
BatchT_co = TypeVar("BatchT_co", covariant=True)
ScorerT_co = TypeVar("ScorerT_co", bound=Replayable, covariant=True)


class Microbatches(tuple[BatchT, ...]):
    """A batch that is computed a microbatch at a time, to hold less memory; their losses add up to the batch's loss."""


@dataclass(frozen=True)
class Portion(Generic[BatchT_co]):
    """A rank's share of a batch.

    Args:
        batch: of its rows, or None where it has none.
        part: what its loss counts by: the part of the batch's mean that its rows make up.
    """

    batch: BatchT_co | Microbatches[BatchT_co] | None
    part: float = 1.0


def parts_of(batch: Any) -> Iterator[tuple[Any, float]]:
    """Yield what is computed at a time of a batch, and what its loss counts by."""
    part = 1.0
    if isinstance(batch, Portion):
        batch, part = Microbatches() if batch.batch is None else batch.batch, batch.part
    for own in batch if isinstance(batch, Microbatches) else (batch,):
        yield own, part


class Task(Protocol[BatchT]):
    """One learning problem bound to one model.

    The loop owns device, optimiser, precision, checkpoints and progress; a task owns data and model. Everything
    random in a task is drawn from (seed, epoch), never from what happened before, so that a resumed run can
    reach any position again; what cannot be redrawn goes into `state`.
    """

    model: nn.Module
    metric: str  # the validation metric that chooses the model, a key of what evaluate returns
    mode: Literal["max", "min"]

    def num_batches(self, epoch: int) -> int:
        """Number of training batches of an epoch."""
        ...

    def batches(self, epoch: int, start: int = 0) -> Iterator[BatchT | Microbatches[BatchT]]:
        """Yield the epoch's batches from position start on, some or all of them as `Microbatches`."""
        ...

    def loss(self, batch: BatchT) -> Tensor | None:
        """Return the scalar training loss of a batch, or of one of its microbatches, already on the model's device.

        None where there is nothing to learn from: no step is taken then.
        """
        ...

    def evaluate(self, split: str) -> dict[str, float]:
        """Return pooled metrics of "train", "val" or "test"; the model is in eval mode, autograd is off."""
        ...

    def predict(self, split: str) -> dict[str, np.ndarray]:
        """Return columns (name to array) of a prediction table with the user's own ids."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Tensors beyond the model's own that a checkpoint must hold (node memory, say); often empty."""
        ...

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` returned."""
        ...


@runtime_checkable
class FitsWhole(Protocol):
    """A task whose model is not trained by steps but made at once, such as trees; equal seeds give equal bits."""

    def fit_whole(self) -> tuple[list[dict[str, float]], int]:
        """Make the model; return a row a stage ("epoch" and validation's figures), and the epoch that was chosen."""
        ...


@runtime_checkable
class Rehearses(Protocol[BatchT_co]):
    """A task whose batches cannot be taken from the middle of an epoch, or whose losses leave more behind than state.

    How long a step takes is otherwise found by taking batches from `Task.batches` and computing their losses.
    """

    def rehearsal(self, epoch: int, start: int) -> Iterator[BatchT_co] | None:
        """Return batches from position start on that cost what an epoch's do; None where that leaves a trace."""
        ...


@runtime_checkable
class Streams(Protocol[ScorerT_co]):
    """A task whose model moves through a stream of events."""

    model: nn.Module
    stream: EventStream

    def scorer_over(self, stream: EventStream) -> ScorerT_co:
        """Return the model over another stream of the same nodes and features."""
        ...


class TaskFacts(TypedDict, total=False):
    """What a task adds to what a run remembers of its data."""

    class_names: tuple[str, ...]  # of the outputs, where the record's do not say
    target: Target  # how labels are learned and judged
    walks: Mapping[str, int] | None  # numbers of walks that are drawn
    clock: Clock | None  # of the gaps in time that the model sees


@runtime_checkable
class Remembers(Protocol):
    """A task with more to keep than weights, so that its model can be applied to other data."""

    def facts(self) -> TaskFacts:
        """Return what a run must remember."""
        ...


@runtime_checkable
class SamplesTraining(Protocol):
    """A task that may judge "train" by a sample of it."""

    @property
    def train_share(self) -> float:
        """Share of the training events or links that "train" is judged by, 1 where that is all."""
        ...


def beside_metrics(task: Task[Any]) -> dict[str, float]:
    """Return what a result tells beside metrics: "train_share" of a task that judges "train" by a sample."""
    judged = task.train_share if isinstance(task, SamplesTraining) else 1.0
    return {"train_share": judged} if judged < 1 else {}


def positive_class(task: Task[Any]) -> str | None:
    """Return the positive class of two that a task learns, None for other targets."""
    target = task.facts().get("target") if isinstance(task, Remembers) else None
    return None if target is None else target.positive


@runtime_checkable
class DrawsCurves(Protocol):
    """A task that keeps what a report draws of test: Hits@k over k, reliability of probabilities.

    curves: of the last judgement of test, as `hopstate.evaluation.summaries` makes it; empty before.
    """

    curves: dict[str, Any]


@runtime_checkable
class ReadsEdges(Protocol):
    """A model that takes features of edges or events.

    edge_dim: how many, 0 for none.
    """

    edge_dim: int


@runtime_checkable
class ExplainsPairs(Protocol):
    """A scorer of pairs whose logits are sums over features."""

    def feature_shares(
        self, src: np.ndarray, dst: np.ndarray, t: np.ndarray
    ) -> tuple[Sequence[str], np.ndarray, np.ndarray]:
        """Return F features' names, and of pairs src (Q,), dst (Q,) at t (Q,) their values and shares, (Q, F) each."""
        ...


__all__ = [
    "DrawsCurves",
    "ExplainsPairs",
    "FitsWhole",
    "HistoryModel",
    "MemoryModel",
    "Microbatches",
    "Portion",
    "ReadsEdges",
    "Rehearses",
    "Remembers",
    "SamplesTraining",
    "Streams",
    "Task",
    "TaskFacts",
    "beside_metrics",
    "parts_of",
    "positive_class",
]
