"""The training loop: epochs over a `Task`'s batches, model selection on validation, and exact resume.

A checkpoint stores all state that determines the next step: weights, optimizer, random generators, position, best
weights and running loss. Batches depend only on (seed, epoch). Therefore a resumed run is bit-identical to an
uninterrupted one on the same CPU, library versions and number of threads. Otherwise it is equal up to rounding, and the
run prints a warning.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch

from hopstate.errors import CheckpointError, ConfigError, HopstateError, HopstateWarning, RanksError
from hopstate.io.opening import reading
from hopstate.layers.modes import training_products
from hopstate.random import rng_state, seed_everything, set_rng_state
from hopstate.training.checkpoint import (
    Checkpoint,
    FitResult,
    Progress,
    check_weights,
    load_checkpoint,
    load_optimizer,
    load_weights,
    optimizer_tensors,
    save_checkpoint,
    write_result,
)
from hopstate.training.config import LoopConfig, lr_at, make_optimizer, set_rate
from hopstate.training.devices import (
    Computation,
    average_gradients,
    check_ranks,
    check_task,
    current_ranks,
    ended,
    make_fabric,
    matmul_precision,
    peak_memory_mb,
    step_seed,
)
from hopstate.training.progress import Reporter, evaluation_progress
from hopstate.training.run_folder import CURVES, RunFolder, json_text, machine
from hopstate.training.tasks.task import Microbatches, Task

STOPPING = (
    "stopping after the current step or evaluation, then saving; press Ctrl-C again to stop now and lose progress "
    "since the last checkpoint"
)


class Stop(threading.Event):
    """A request to stop training, which waits for the current step. A second request raises KeyboardInterrupt."""

    def __init__(self, notify: Callable[[str], object] = lambda text: None) -> None:
        super().__init__()
        self._notify = notify

    def request(self) -> None:
        if self.is_set():
            raise KeyboardInterrupt
        self.set()
        with contextlib.suppress(RuntimeError, OSError):  # the signal may interrupt another print
            self._notify(STOPPING)


@contextmanager
def interrupts(notify: Callable[[str], object] = lambda text: None) -> Iterator[Stop]:
    """Turn the first Ctrl-C or SIGTERM into a `Stop` event; a second one stops immediately."""
    stop = Stop(notify)
    with signals_to(lambda number: stop.request()) as before:
        try:
            yield stop
        except RanksError:
            # torchrun now ends the remaining ranks: let them report the error first
            before[signal.SIGTERM] = signal.SIG_IGN
            raise


@contextmanager
def signals_to(call: Callable[[int], None]) -> Iterator[dict[int, Any]]:
    """Replace the handlers of Ctrl-C and SIGTERM by a call with the signal's number; yield and restore the old ones.

    Outside the main thread, which receives no signals, nothing changes.
    """
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, lambda arrived, frame: call(arrived))
    try:
        yield before
    finally:
        for own, handler in before.items():
            signal.signal(own, handler)


MEASURED_BATCHES = 3  # the first one compiles and fills caches
MEASURED_SECONDS = 1.0  # no third batch after this time
LIBRARIES = ("torch", "numpy", "numba")


def conditions(device: str) -> dict[str, str]:
    """Return the conditions for bit-identical resume by name."""
    found = machine()
    place = found["processor"] if device == "cpu" else found["gpu"] or device
    versions = {name: found["versions"][name] for name in LIBRARIES}
    return {"threads": str(found["threads"]), "processor": place} | versions


def changed_conditions(before: dict[str, str], now: dict[str, str]) -> str | None:
    """Return a sentence about conditions that changed since a run was interrupted, or None."""
    changed = {name: old for name, old in before.items() if now.get(name, old) != old}
    if not changed:
        return None
    changes = ", ".join(f"{name} {old}, now {now[name]}" for name, old in changed.items())
    mend = f"; OMP_NUM_THREADS={before['threads']} keeps results bit-identical" if list(changed) == ["threads"] else ""
    return f"the run was interrupted on another setup ({changes}): results will match up to rounding only{mend}"


SPLITS = ("train", "val", "test")


class Trainer:
    """Train one task inside one run folder until it ends or is interrupted.

    Args:
        task: the task to train.
        config: training settings.
        run: folder for all output.
        method: name of the method; checkpoints of other methods are rejected.
        data_hash: hash of the data; checkpoints of other data are rejected.
        splits: splits to evaluate at the end. Hyperparameter search leaves out test, which then cannot be evaluated.
    """

    def __init__(
        self,
        task: Task[Any],
        config: LoopConfig,
        run: RunFolder,
        *,
        method: str,
        data_hash: str = "",
        splits: tuple[str, ...] = SPLITS,
    ) -> None:
        self.task, self.config, self.run, self.splits = task, config, run, splits
        self.identity = {"method": method, "data_hash": data_hash}
        self.ranks = current_ranks()
        check_task(self.ranks, task, method)
        self.fabric = make_fabric(config.device, config.precision)
        self.precision = Computation(self.fabric, config).precision
        self._precision = self.fabric._precision  # holds the loss scale of 16-mixed
        self.progress = Progress()
        self.best: dict[str, torch.Tensor] = {}
        self.optimizer: Any = None
        self._losses: list[torch.Tensor] = []  # of steps whose loss has not been read from the device yet
        self._last_save, self._agreed, self._stop = time.monotonic(), False, Stop()
        self._conditions = conditions(self.fabric.device.type)

    def fit(self, *, resume: bool = False) -> FitResult:
        """Train or resume, select the best epoch on validation, and evaluate its weights on `splits`.

        Raises:
            CheckpointError: the folder's checkpoint is damaged, or from another method or model.
            HopstateError: the loss became NaN or infinite; the message names epoch and step.
        """
        task = self.task
        parameters = self._set_up()
        rows = self._restore() if resume and self.run.checkpoint.is_file() else []
        self.ranks.barrier()  # all have read the checkpoint
        self.run.start_metrics(rows)
        reporter = Reporter(self.config, self.run, task.metric, rows, self._positive_class())
        with interrupts(reporter.note) as self._stop, reporter, training_products(task.model):
            if not self.progress.total_steps and not self.progress.epoch:
                self._fit_without_gradients(reporter)
                if self._stop.is_set():
                    return FitResult(True, self.progress, {})
            if not self._finished():
                reporter.begin(parameters, self._steps(self.progress.epoch), self.progress)
                if self.ranks.size > 1:  # so that the run can resume if a rank fails
                    self.save()
            while not self._finished():
                row = self._epoch(reporter)
                if row is not None:
                    self.run.append_metrics(row)
                    reporter.epoch(row, self.progress)
                if self._stopped():
                    self.save()
                    reporter.draw(self.run.history(), self.progress)
                    return FitResult(True, self.progress, {})
                if time.monotonic() - self._last_save >= self.config.checkpoint_seconds:
                    self.save()
            metrics = self._final()
            reporter.final(metrics, self.progress)
            reporter.draw(self.run.history(), self.progress)
        return FitResult(False, self.progress, metrics)

    def _set_up(self) -> int:
        """Move the model to its device, create its optimizer and return the number of trained parameters."""
        task = self.task
        parameters = [p for p in task.model.parameters() if p.requires_grad]
        if parameters:
            optimizer = make_optimizer(self.config.optim, parameters)
            task.model, self.optimizer = self.fabric.setup(task.model, optimizer)
        return sum(p.numel() for p in parameters)

    def _steps(self, epoch: int) -> int:
        return -(-self.task.num_batches(epoch) // self.ranks.size)

    def _positive_class(self) -> str | None:
        target = self.task.facts().get("target")
        return None if target is None else target.positive

    def measured_epoch(self) -> tuple[float | None, int]:
        """Estimate the seconds of an epoch's steps, and return them with the number of steps.

        A few batches are timed, from the middle of an epoch because the first batches have short histories. Tasks with
        a memory start at the beginning. Do not use the task afterwards.
        """
        task = self.task
        if not self._set_up():
            return None, 0
        count, times = task.num_batches(0), list[float]()
        start = 0 if task.single_process else count // 2
        task.model.train()
        begin = last = time.perf_counter()
        with training_products(task.model):
            for batch in chain.from_iterable(task.batches(0, start) for _ in range(MEASURED_BATCHES)):
                loss = self._backward(batch)
                if loss is not None:
                    loss.item()  # waits for the device
                now = time.perf_counter()
                times.append(now - last)
                last = now
                if len(times) == MEASURED_BATCHES or (len(times) > 1 and now - begin > MEASURED_SECONDS):
                    break
        step = min(times[1:] or times, default=None)  # the first one compiles
        return None if step is None else step * count, count

    def _fit_without_gradients(self, reporter: Reporter) -> None:
        """Fit a model without gradient steps; a run interrupted before it is saved restarts."""
        p, begin = self.progress, time.perf_counter()
        row = self.task.fit_without_gradients()
        if row is None:
            return
        self.run.append_metrics(row)
        p.epoch = p.best_epoch = int(row["epoch"])
        p.best = row.get(f"val_{self.task.metric}", math.nan)
        p.seconds += time.perf_counter() - begin
        reporter.log(row)
        self.save()

    # ---- one epoch -------------------------------------------------------------------------------------
    def _finished(self) -> bool:
        p, c = self.progress, self.config
        stale = False
        if c.patience is not None and p.best is not None and p.step == 0:
            stale = p.epoch - p.best_epoch >= max(c.patience, c.eval_every)  # the next validation takes place
        return self.optimizer is None or p.epoch >= c.epochs or stale  # without parameters there is nothing to train

    def _epoch(self, reporter: Reporter) -> dict[str, Any] | None:
        p, task, ranks, begin = self.progress, self.task, self.ranks, time.perf_counter()
        count = self._steps(p.epoch)
        if count == 0:
            raise ConfigError("there is no training batch: the training split is empty")
        task.model.train()
        batches = iter(task.batches(p.epoch, p.step * ranks.size + ranks.rank, ranks.size))
        for _ in range(p.step, count):
            self._step(next(batches, None), count)
            reporter.step(p, count)
            if 0 < self.config.checkpoint_seconds <= time.monotonic() - self._last_save:
                self.save()
            if self._stopped() and p.step < count:
                p.seconds += time.perf_counter() - begin
                return None
        self._read_losses()
        row = {
            "epoch": p.epoch + 1,
            "step": p.total_steps,
            # a resumed optimizer may not have taken a step yet
            "lr": lr_at(self.config.optim, p.total_steps - 1, self.config.epochs * count),
            "train_loss": p.loss_sum / p.learned if p.learned else math.nan,
        }
        p.epoch, p.step, p.loss_sum, p.learned = p.epoch + 1, 0, 0.0, 0
        if p.epoch % self.config.eval_every == 0 or p.epoch == self.config.epochs:
            metrics = self.evaluate("val")
            row |= {f"val_{name}": value for name, value in metrics.items()}
            self._choose(metrics[task.metric], metrics.get("loss", metrics.get("mae", math.inf)))
        spent = time.perf_counter() - begin
        p.seconds += spent
        return row | {"seconds": round(spent, 4)}

    def _stopped(self) -> bool:
        """Return whether to stop now; all ranks stop after the same step."""
        return self._stop.is_set() if self.ranks.size == 1 else self._agreed

    def _step(self, batch: Any, count: int) -> None:
        p = self.progress
        set_rate(self.optimizer, self.config.optim, p.total_steps, self.config.epochs * count)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._backward(batch) if self.ranks.size == 1 else self._backward_on_ranks(batch)
        if loss is not None:
            self._learn(loss)
        p.step, p.total_steps = p.step + 1, p.total_steps + 1

    def _learn(self, loss: torch.Tensor) -> None:
        """Take one optimizer step."""
        max_norm = self.config.grad_clip
        if max_norm is not None:
            self.fabric.clip_gradients(self.task.model, self.optimizer, max_norm=max_norm, error_if_nonfinite=False)
        self._losses.append(loss)
        # before the step, so that a loss that is not finite spoils no weights; elsewhere, reading it synchronizes
        if loss.device.type == "cpu":
            self._read_losses()
        self.optimizer.step()
        self.progress.learned += 1

    def _backward_on_ranks(self, batch: Any) -> torch.Tensor | None:
        """Average gradients and loss over the ranks; the last step may have fewer batches than ranks."""
        seed_everything(step_seed(self.config.seed, self.ranks, self.progress.total_steps))
        loss = None if batch is None else self._backward(batch)
        try:
            loss, self._agreed = average_gradients(self.task.model, loss, self._stop.is_set())
        except RanksError as error:
            self.save()  # rank 0 saves the weights before this step
            raise ended(error, self.progress, self.run.path, self.ranks) from None
        return loss

    def _backward(self, batch: Any) -> torch.Tensor | None:
        """Accumulate the gradients of a batch and return its loss, or None if it has no labels."""
        losses = []
        for microbatch in batch if isinstance(batch, Microbatches) else (batch,):
            with self.precision():
                loss = self.task.loss(self.fabric.to_device(microbatch))
            if loss is None:
                continue
            with matmul_precision(self.config.matmul_precision):
                self.fabric.backward(loss)
            losses.append(loss.detach())
        return torch.stack(losses).sum() if losses else None

    def _read_losses(self) -> None:
        """Add the losses since the last call to the epoch's sum; HopstateError if one is not finite."""
        p = self.progress
        for value in torch.stack(self._losses).tolist() if self._losses else []:
            if not math.isfinite(value):
                raise HopstateError(
                    f"the loss became {value} in epoch {p.epoch + 1}, by step {p.step + 1}; lower "
                    f"loop.optim.lr, set loop.grad_clip, or use precision 32"
                )
            p.loss_sum += value
        self._losses.clear()

    def _choose(self, value: float, loss: float) -> None:
        """Store the weights if validation improved; the loss breaks ties and replaces undefined metrics."""
        p, sign = self.progress, 1 if self.task.mode == "max" else -1
        current, best = (-math.inf if v is None or math.isnan(v) else sign * v for v in (value, p.best))
        if (current, -loss) > (best, -p.best_loss):
            p.best, p.best_loss, p.best_epoch = value, loss, p.epoch
            self.best = {k: v.detach().cpu().clone() for k, v in self.task.model.state_dict().items()}

    def evaluate(self, split: str) -> dict[str, float]:
        """Return the task's metrics of a split with the current weights.

        Raises:
            ConfigError: this trainer must not evaluate the split.
        """
        if split in SPLITS and split not in ("val", *self.splits):
            raise ConfigError(f"this run must not evaluate the {split} split; allowed: {', '.join(self.splits)}")
        self.task.model.eval()
        with torch.no_grad(), self.precision(), evaluation_progress(self.config, split):
            return self.ranks.broadcast(lambda: self.task.evaluate(split))

    # ---- checkpoints -----------------------------------------------------------------------------------
    def save(self) -> None:
        """Write a checkpoint; an earlier one survives any failure."""
        self._read_losses()
        if not self.ranks.is_first:
            return
        groups = {
            "model": self.task.model.state_dict(),
            "best": self.best,
            "rng": rng_state(),
            "optimizer": optimizer_tensors(self.optimizer) if self.optimizer is not None else {},
            "task": self.task.state(),
        }
        record = {
            **self.identity,
            "progress": vars(self.progress),
            "precision": self._precision.state_dict(),
            "conditions": self._conditions,
        } | ({"ranks": self.ranks.size} if self.ranks.size > 1 else {})
        self.run.sync_metrics()
        save_checkpoint(self.run.checkpoint, Checkpoint(tensors=groups, record=record))
        self._last_save = time.monotonic()

    def _restore(self) -> list[dict[str, Any]]:
        where = str(self.run.checkpoint)
        saved = load_checkpoint(self.run.checkpoint)
        for key, value in self.identity.items():
            if saved.record.get(key, value) != value:
                what = "the data have changed" if key == "data_hash" else f"this is a {value} run"
                raise CheckpointError(
                    f"{where} was written by a {saved.record['method']} run and {what}; choose another --out"
                )
        check_ranks(saved.record, self.ranks, where)
        load_weights(self.task.model, saved.tensors.get("model", {}), where)
        if self.optimizer is not None:
            load_optimizer(self.optimizer, saved.tensors.get("optimizer", {}), where)
        with reading(where, "a checkpoint", CheckpointError):
            self.task.load_state(saved.tensors.get("task", {}))
            self.best = saved.tensors.get("best", {})
            check_weights(self.task.model, self.best, f"the best epoch of {where}", allow_empty=not self.best)
            self.progress = Progress.of_record(saved.record["progress"])
            self._precision.load_state_dict(saved.record.get("precision", {}))
            set_rng_state(saved.tensors["rng"])
        changes = changed_conditions(saved.record.get("conditions", {}), self._conditions)
        if changes and not self._finished():
            warnings.warn(changes, HopstateWarning, stacklevel=3)
        return [row for row in self.run.history() if row["epoch"] <= self.progress.epoch]

    def _final(self) -> dict[str, dict[str, float]]:
        self.save()
        if self.best:
            load_weights(self.task.model, self.best, "the best epoch")
        metrics = {split: self.evaluate(split) for split in self.splits}
        if not self.ranks.is_first:
            return metrics
        record = {**self.identity, "metrics": metrics, "best_epoch": self.progress.best_epoch}
        weights = Checkpoint(tensors={"model": dict(self.task.model.state_dict())}, record=record)
        report_curves = self.task.curves if "test" in self.splits else {}
        curves = {self.run.path / CURVES: json_text(report_curves)} if report_curves else {}
        write_result(self.run.weights, weights, self.run.path / "result.json", json_text(self._result(metrics)), curves)
        return metrics

    def _result(self, metrics: dict[str, dict[str, float]]) -> dict[str, Any]:
        p, positive, share = self.progress, self._positive_class(), self.task.train_share
        return {
            **self.identity,
            "metric": self.task.metric,
            "mode": self.task.mode,
            "metrics": metrics,
            "best_epoch": p.best_epoch,
            "epochs": p.epoch,
            "seconds": round(p.seconds, 3),
            "seconds_per_epoch": round(p.seconds / max(1, p.epoch), 4),
            "parameters": sum(t.numel() for t in self.task.model.parameters()),
            "peak_memory_mb": peak_memory_mb(),
            **({} if positive is None else {"positive_class": positive}),
            **({"train_share": share} if share < 1 else {}),
        }
