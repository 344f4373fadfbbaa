"""The `Task` interface that the training loop runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypedDict, TypeVar, runtime_checkable

import numpy as np
from torch import Tensor, nn

from hopstate.errors import ConfigError

if TYPE_CHECKING:
    from hopstate.data.dates import Clock
    from hopstate.training.tasks.target import Target


T = TypeVar("T")
_END: Any = object()


def prefetched(source: Iterable[T]) -> Iterator[T]:
    """Yield the items of a source, each of which a background thread prepares while the previous one is used.

    This helps if producing an item releases the interpreter lock, as compiled code does. An error of the source is
    raised in place of its item.
    """
    items = iter(source)
    with ThreadPoolExecutor(1, "hopstate-prefetch") as pool:
        ahead = pool.submit(next, items, _END)
        while (item := ahead.result()) is not _END:
            ahead = pool.submit(next, items, _END)
            yield item


BatchT = TypeVar("BatchT")  # nested tuples or dicts of tensors


class Microbatches(tuple[BatchT, ...]):
    """A batch split into microbatches to save memory; their losses sum to the batch's loss."""


class TaskFacts(TypedDict, total=False):
    """Facts about a task that a run stores so that the model can be applied to other data."""

    class_names: tuple[str, ...]  # of the outputs, if the data does not name them
    target: Target  # losses and metrics of the labels
    walks: Mapping[str, int] | None  # numbers of sampled walks
    clock: Clock | None  # time normalization of the model's inputs


class Task(ABC, Generic[BatchT]):
    """One learning problem bound to one model.

    The training loop owns device, optimizer, precision, checkpoints and progress. A task owns data and model. All
    random choices depend only on (seed, epoch), so that a resumed run can restore any position. State that cannot be
    recomputed belongs in `state`.

    model: the trained model; the loop replaces it with the model wrapped by Fabric.
    metric: validation metric for model selection, a key of the result of `evaluate`.
    mode: "max" if a larger metric is better, otherwise "min".
    single_process: the reason why several processes cannot train this task, "" if they can.
    train_share: fraction of the training examples that "train" is evaluated on.
    curves: report curves of the last test evaluation, as built by `hopstate.evaluation.summaries`.
    """

    metric: str
    mode: Literal["max", "min"] = "max"

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.curves: dict[str, Any] = {}

    @property
    def single_process(self) -> str:
        return ""

    @property
    def train_share(self) -> float:
        return 1.0

    @abstractmethod
    def num_batches(self, epoch: int) -> int:
        """Return the number of training batches of an epoch."""

    @abstractmethod
    def batches(self, epoch: int, start: int = 0, step: int = 1) -> Iterator[BatchT | Microbatches[BatchT]]:
        """Yield every step-th batch of an epoch from batch `start` on; rank r of n uses start=r, step=n."""

    @abstractmethod
    def loss(self, batch: BatchT) -> Tensor | None:
        """Return the scalar training loss of a batch or microbatch that is already on the model's device.

        None means that the batch has no labels, so the loop skips the optimizer step.
        """

    @abstractmethod
    def evaluate(self, split: str) -> dict[str, float]:
        """Return pooled metrics of "train", "val" or "test"; called in eval mode without gradients."""

    @abstractmethod
    def predict(self, split: str) -> dict[str, np.ndarray]:
        """Return the columns of a prediction table by name, with the user's node ids."""

    def fit_without_gradients(self) -> dict[str, float] | None:
        """Fit a model that has no gradient steps, and return "epoch" and validation metrics; None for other models."""
        return None

    def facts(self) -> TaskFacts:
        """Return facts that a run stores so that the model can be applied to other data."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """Return tensors for the checkpoint that are not model weights, such as node memory."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore tensors returned by `state`."""


def rows_of_split(split: Mapping[str, np.ndarray], name: str, count: int) -> np.ndarray:
    """Return the rows of a split, or of "all" (count,).

    Raises:
        ConfigError: the data have no such split.
    """
    if name == "all":
        return np.arange(count)
    if name not in split:
        raise ConfigError(f"these data have no split {name!r}; known: {', '.join([*split, 'all'])}")
    return split[name]


class TaskSource:
    """Source of a task's batches, with state that training changes in addition to the weights.

    single_process: see `Task`.
    """

    single_process = ""

    def state(self) -> dict[str, Tensor]:
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None: ...


SourceT = TypeVar("SourceT", bound=TaskSource)


class SourceTask(Task[BatchT], Generic[BatchT, SourceT]):
    """A task that gets its batches from a `TaskSource`."""

    def __init__(self, model: nn.Module, source: SourceT) -> None:
        super().__init__(model)
        self.source = source

    @property
    def single_process(self) -> str:
        return self.source.single_process

    def state(self) -> dict[str, Tensor]:
        return self.source.state()

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.source.load_state(state)


@runtime_checkable
class ExplainsPairs(Protocol):
    """A pair scorer whose logits are sums of feature contributions."""

    def feature_shares(
        self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, relation: np.ndarray | None = None
    ) -> tuple[Sequence[str], np.ndarray, np.ndarray]:
        """Return F names, and the values and contributions (Q, F) for pairs src, dst (Q,) at t (Q,)."""
        ...
