"""`Task`, what the training loop runs, and what a model or task can say of its own scores."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypedDict, TypeVar, runtime_checkable

import numpy as np
from torch import Tensor, nn

if TYPE_CHECKING:
    from hopstate.data.dates import Clock
    from hopstate.training.tasks.target import Target


T = TypeVar("T")
_END = object()


class Prefetcher(Generic[T]):
    """Iterate over items, taken from their source by one background thread, in the source's order.

    Useful where making an item is compiled code that releases the interpreter lock. Leaving the loop early, by
    break or exception, stops the thread; an error of the source is raised where its item would have been.

    Args:
        source: what to iterate over; it is touched by the background thread alone.
        buffer_size: most items held ready, at least 1.
    """

    def __init__(self, source: Iterable[T], buffer_size: int = 1) -> None:
        self.source, self.buffer_size = source, max(1, buffer_size)

    def __iter__(self) -> Iterator[T]:
        ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(self.buffer_size)
        stop = threading.Event()
        worker = threading.Thread(target=self._fill, args=(ready, stop), name="hopstate-prefetch", daemon=True)
        worker.start()
        try:
            while True:
                item, error = ready.get()
                if error is not None:
                    raise error
                if item is _END:
                    return
                yield item
        finally:
            stop.set()
            while worker.is_alive():  # a full queue would keep the thread waiting
                while not ready.empty():
                    ready.get_nowait()
                worker.join(0.01)

    def _fill(self, ready: queue.Queue[tuple[Any, BaseException | None]], stop: threading.Event) -> None:
        try:
            for item in self.source:
                if stop.is_set():
                    return
                ready.put((item, None))
            ready.put((_END, None))
        except BaseException as error:
            ready.put((None, error))


BatchT = TypeVar("BatchT")  # nested tuples or dicts of tensors


class Microbatches(tuple[BatchT, ...]):
    """A batch that is computed a microbatch at a time, to hold less memory; their losses add up to the batch's loss."""


class TaskFacts(TypedDict, total=False):
    """What a task adds to what a run remembers of its data."""

    class_names: tuple[str, ...]  # of the outputs, where the record's do not say
    target: Target  # how labels are learned and evaluated
    walks: Mapping[str, int] | None  # numbers of walks that are drawn
    clock: Clock | None  # of the gaps in time that the model sees


class Task(ABC, Generic[BatchT]):
    """One learning problem bound to one model.

    The loop owns device, optimizer, precision, checkpoints and progress; a task owns data and model. Everything
    random in a task is drawn from (seed, epoch), never from what happened before, so that a resumed run can
    reach any position again; what cannot be redrawn goes into `state`.

    model: what is trained; the loop replaces it by the model as Fabric wraps it.
    metric: the validation metric that chooses the epoch, a key of what `evaluate` returns.
    mode: whether the metric is better if it is larger.
    single_process: why several processes cannot train it, in words; "" if they can.
    train_share: share of the training examples that "train" is evaluated on.
    curves: what a report draws of the last evaluation of test, as `hopstate.evaluation.summaries` makes it.
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
        """Number of training batches of an epoch."""

    @abstractmethod
    def batches(self, epoch: int, start: int = 0, step: int = 1) -> Iterator[BatchT | Microbatches[BatchT]]:
        """Yield every step-th batch of an epoch, from number start on; rank r of n takes start=r, step=n."""

    @abstractmethod
    def loss(self, batch: BatchT) -> Tensor | None:
        """Return the scalar training loss of a batch, or of one of its microbatches, already on the model's device.

        None where there is nothing to learn from: no step is taken then.
        """

    @abstractmethod
    def evaluate(self, split: str) -> dict[str, float]:
        """Return pooled metrics of "train", "val" or "test"; the model is in eval mode, autograd is off."""

    @abstractmethod
    def predict(self, split: str) -> dict[str, np.ndarray]:
        """Return columns (name to array) of a prediction table with the user's own ids."""

    def fit_without_gradients(self) -> tuple[list[dict[str, float]], int] | None:
        """Make a model that is not trained by steps, such as trees; None for a model that is.

        Returns:
            A row of metrics for each stage ("epoch" and those of validation), and the epoch that was chosen.
        """
        return None

    def facts(self) -> TaskFacts:
        """Return what a run must remember so that the model can be applied to other data."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """Return tensors beyond the model's own that a checkpoint must hold (node memory, say)."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""


class TaskSource:
    """Where batches of a task come from, and what training moves beside the weights.

    single_process: see `Task`.
    """

    single_process = ""

    def state(self) -> dict[str, Tensor]:
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None: ...


SourceT = TypeVar("SourceT", bound=TaskSource)


class SourceTask(Task[BatchT], Generic[BatchT, SourceT]):
    """A task whose batches another object makes."""

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
    """A scorer of pairs whose logits are sums over features."""

    def feature_shares(
        self, src: np.ndarray, dst: np.ndarray, t: np.ndarray
    ) -> tuple[Sequence[str], np.ndarray, np.ndarray]:
        """Return F features' names, and of pairs src (Q,), dst (Q,) at t (Q,) their values and shares, (Q, F) each."""
        ...
