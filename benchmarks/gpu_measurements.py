"""The measurements of `gpu.py`, each a function that yields its lines as it measures them."""

from __future__ import annotations

import argparse
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import machine, median_time
from gpu import append
from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.methods import get_method
from hopstate.methods.method import Context
from hopstate.training.config import LoopConfig
from hopstate.training.devices import make_fabric
from hopstate.training.tasks.task import Microbatches

# nodes, events, seconds from the first to the last, and the length of histories in DyG-Mamba's and DyGFormer's tables
STREAMS = {"uci": (1_899, 59_835, 16_736_181, 32)}
ARXIV = (169_343, 1_166_243, 128, 40)  # nodes, edges, features, classes
SCAN = [(800, 400, 64, 16), (100, 400, 2048, 16), (1, 256, 169_343, 16)]  # sequences, channels, length, S
Lines = Iterator[dict[str, Any]]


def run(name: str, options: argparse.Namespace) -> None:
    """Run one measurement and write its lines.

    Raises:
        SystemExit: there is no GPU, or a part failed; the other parts are written nevertheless.
    """
    device = "cpu" if options.dry_run else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("torch sees no CUDA device; --dry-run runs on the CPU")
    torch.manual_seed(0)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    facts = {"measurement": name, "started": started, "tests": options.tests, "dry_run": options.dry_run}
    facts["machine"] = machine()
    failed = 0
    for row in MEASURES[name](device, options.dry_run, options.data):
        failed += "error" in row
        append(options.out / f"{name}.jsonl", facts | row)
    if failed:
        raise SystemExit(f"{failed} part(s) failed, see the lines")


def attempt(measure: Callable[..., dict[str, Any]], *arguments: Any, **labels: Any) -> dict[str, Any]:
    """Return `labels` with the result of measure(*arguments) or its error, so that the next part can run."""
    try:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        return labels | measure(*arguments)
    except Exception as error:
        traceback.print_exc()
        return labels | {"error": f"{type(error).__name__}: {str(error)[:300]}"}


def peak_gib() -> float | None:
    """Return the peak GPU memory since `attempt` started, in GiB."""
    return round(torch.cuda.max_memory_allocated() / 2**30, 3) if torch.cuda.is_available() else None


# ---- the scan -----------------------------------------------------------------------------------------
def scan(device: str, tiny: bool, data: Path) -> Lines:
    """Both discretisations of the selective scan at three shapes, against the time of copying its arrays."""
    size = 2**20 if tiny else 2**28
    big = torch.empty(size, device=device)
    bandwidth = 2 * 4 * size / median_time(big.clone, repeats=10)
    del big
    yield {"copy_bytes_per_second": bandwidth}
    for shape in [(2, 16, 9, 4)] if tiny else SCAN:
        for rule in ("zoh", "euler"):
            yield attempt(scan_times, shape, rule, device, bandwidth, shape=shape, discretization=rule)


def scan_times(shape: tuple[int, int, int, int], rule: str, device: str, bandwidth: float) -> dict[str, Any]:
    from hopstate.ops import selective_scan
    from selective_scan import inputs, mamba_times

    n, channels, length, S = shape
    *leaves, dy = inputs(shape, device)
    forward = median_time(lambda: selective_scan(*leaves, discretization=rule))
    y = selective_scan(*leaves, discretization=rule)
    backward = median_time(lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True))
    baselines = [4 * n * length * numbers / bandwidth for numbers in (3 * channels + 2 * S, 5 * channels + 4 * S)]
    return {
        "forward_ms": 1e3 * forward, "backward_ms": 1e3 * backward, "baselines_ms": [1e3 * f for f in baselines],
        "times_the_baselines": [forward / baselines[0], backward / baselines[1]], "peak_gib": peak_gib(),
        "mamba_ssm_ms": mamba_times(leaves, dy),
    }  # fmt: skip


# ---- training as `hopstate fit` does it ------------------------------------------------------------------
def loop(precision: str = "32") -> LoopConfig:
    return LoopConfig(precision=precision, progress=False, logger="none")  # type: ignore[arg-type]


def train(
    method: str, record: Any, settings: dict[str, Any], device: str, *, seconds: float, precision: str = "32",
    change: Callable[[torch.nn.Module], Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Train for some seconds or ten epochs, whichever is shorter; return the time of a step and an epoch.

    Args:
        method: its name.
        record: the data.
        settings: fields of its configuration.
        device: "cuda" or "cpu".
        seconds: for steps, after two that warm up.
        precision: as loop.precision.
        change: what is done to the model first, `torch.compile` for example.
    """
    chosen = get_method(method)
    fabric = make_fabric(device, precision)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        context = Context(run=Path(folder), cache=Path(folder))
        begin = time.perf_counter()
        task = chosen.build(record, chosen.config(data="memory", loop=loop(precision), **settings), context)
        prepared = time.perf_counter() - begin
        if change is not None:
            change(task.model)
        optimizer = torch.optim.Adam(task.model.parameters(), lr=1e-4)
        task.model, optimizer = fabric.setup(task.model, optimizer)
        task.model.train()
        count, times, losses = task.num_batches(0), [], []
        for batch in (batch for epoch in range(10) for batch in task.batches(epoch)):
            begin = time.perf_counter()
            losses.append(one_step(task, batch, fabric, optimizer))
            times.append(time.perf_counter() - begin)
            if sum(times[2:]) > seconds:
                break
    steady = times[2:] or times
    return {
        "step_ms": 1e3 * float(np.median(steady)), "steps": len(times), "steps_of_an_epoch": count,
        "epoch_s": float(np.mean(steady)) * count, "first_step_s": times[0], "prepare_s": prepared,
        "loss": losses[-1], "peak_gib": peak_gib(),
    }  # fmt: skip


def one_step(task: Any, batch: Any, fabric: Any, optimizer: Any) -> float:
    """Take one step of the optimiser, as the training loop does, and return the loss."""
    optimizer.zero_grad(set_to_none=True)
    total = 0.0
    for part in batch if isinstance(batch, Microbatches) else (batch,):
        with fabric.autocast():
            loss = task.loss(fabric.to_device(part))
        if loss is not None:
            fabric.backward(loss)
            total += float(loss.detach())
    optimizer.step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return total


def events_of(name: str, data: Path, tiny: bool) -> tuple[EventStream, str, int]:
    """Return a stream, its source, and the length of histories in the papers' tables."""
    nodes, events, horizon, length = STREAMS[name]
    found = [path for path in (data / name / f"ml_{name}.csv", data / f"ml_{name}.csv") if path.is_file()]
    if found and not tiny:
        from dygformer_step import load

        return load(found[0]), "DyGLib's file", length
    if tiny:
        nodes, events, length = 20, 300, 4
    rng = np.random.default_rng(0)
    src, dst = (rng.zipf(1.6, (2, events)) % nodes).astype(np.int64)
    src[:nodes] = dst[:nodes] = np.arange(nodes)  # each has an event
    dst = np.where(src == dst, (dst + 1) % nodes, dst)
    stream = EventStream(src=src, dst=dst, t=np.sort(rng.uniform(0, horizon, events)), name=name)
    return stream, f"made: {nodes} nodes, {events} events, {horizon} s", length


def history_settings(method: str, length: int) -> dict[str, Any]:
    """Return settings of a method on histories of a length."""
    config = get_method(method).config(data="memory")
    if method == "dyg-mamba":
        return {"history": replace(config.history, max_length=length)}
    return {"model": replace(config.model, max_length=length)}


def epochs(device: str, tiny: bool, data: Path) -> Lines:
    """An epoch on UCI: DyG-Mamba and DyGFormer at three lengths, then CTDG-SSM, in float32 and bfloat16."""
    stream, source, _ = events_of("uci", data, tiny)
    few = {"batch_size": 100} if tiny else {}
    cases = [(name, length) for length in ((4,) if tiny else (32, 512, 2048)) for name in ("dyg-mamba", "dygformer")]
    for method, length in [*cases, ("ctdg-ssm", None)]:
        settings = few if length is None else history_settings(method, length) | few
        for precision in ("32", "bf16-mixed"):
            labels = {"method": method, "length": length, "precision": precision, "data": source}
            seconds = 1 if tiny else 5
            yield attempt(timed(method, stream, settings, device, seconds=seconds, precision=precision), **labels)


def timed(method: str, record: Any, settings: dict[str, Any], device: str, **how: Any) -> Callable[[], dict[str, Any]]:
    return lambda: train(method, record, settings, device, **how)


def lengths(device: str, tiny: bool, data: Path) -> Lines:
    """A step of both on full histories of 32 to 4,096 events: growth of time and memory."""
    from dyg_mamba_lengths import NAMES

    for length in (4, 8) if tiny else (32, 64, 128, 256, 512, 1024, 2048, 4096):
        how = argparse.Namespace(device=device, events=4 if tiny else 32, repeats=1 if tiny else 3, gib=1e6)
        for name in NAMES:
            yield attempt(length_times, name, length, how, method=name, length=length)


def length_times(name: str, length: int, how: argparse.Namespace) -> dict[str, Any]:
    from dyg_mamba_lengths import measured

    found = measured(name, length, how)
    if found is None:
        return {"out_of_memory": True}
    return {"step_ms": 1e3 * found[0], "gib": found[1]}


# ---- graphs -----------------------------------------------------------------------------------------------
def arxiv_like(tiny: bool) -> Graph:
    """Return a graph of ogbn-arxiv's size: nodes, edges, features, classes."""
    from hopstate.datasets.generators import stochastic_block_model

    nodes, edges, features, classes = (60, 240, 8, 2) if tiny else ARXIV
    degree = 2 * edges / nodes
    graph = stochastic_block_model(nodes, classes, degree=degree, num_features=features, homophily=0.6, seed=0)
    part = np.random.default_rng(0).permutation(nodes) % 4
    return graph.with_(masks={"train": part < 2, "val": part == 2, "test": part == 3})


def gmn(device: str, tiny: bool, data: Path) -> Lines:
    """Graph Mamba Networks on a graph of ogbn-arxiv's size, in batches of automatic size and of 10,000 nodes."""
    graph = arxiv_like(tiny)
    for size in (None, 20 if tiny else 10_000):
        labels = {"nodes": graph.num_nodes, "edges": graph.num_edges, "batch_size": size}
        yield attempt(timed("gmn", graph, {"batch_size": size}, device, seconds=1 if tiny else 8), **labels)


def top(device: str, tiny: bool, data: Path) -> Lines:
    """A 3-layer GCN on the same graph: TOP and GAS in batches of uniformly drawn nodes, and the whole graph."""
    from hopstate.compensation.top.top import TopConfig
    from hopstate.methods.message_passing.batching import Batching
    from hopstate.methods.message_passing.model import Backbone

    graph = arxiv_like(tiny)
    model = Backbone.Config(dim=8 if tiny else 256, num_layers=3)
    size = 20 if tiny else 16_384
    kinds = {
        "full": Batching(kind="full"),
        "top, refreshed": Batching(kind="top", nodes="random", batch_size=size, top=TopConfig(refresh=5)),
        "top, made once": Batching(kind="top", nodes="random", batch_size=size, top=TopConfig(refresh=0)),
        "gas": Batching(kind="gas", nodes="random", batch_size=size),
    }
    for name, batching in kinds.items():
        labels = {"batching": name, "nodes": graph.num_nodes, "edges": graph.num_edges}
        settings = {"model": model, "batching": batching}
        yield attempt(timed("gcn", graph, settings, device, seconds=1 if tiny else 8), **labels)


# ---- precision and compilation ------------------------------------------------------------------------------
def subjects(tiny: bool, data: Path) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return data and settings of methods on events, on nodes and on the whole graph."""
    stream, _, length = events_of("uci", data, tiny)
    graph, few = arxiv_like(tiny), {"batch_size": 50} if tiny else {}
    return {
        "dyg-mamba": (stream, history_settings("dyg-mamba", length) | few),
        "dygformer": (stream, history_settings("dygformer", length) | few),
        "nagphormer": (graph, few),
        "sage": (graph, {}),
    }


def precision(device: str, tiny: bool, data: Path) -> Lines:
    """bf16 compared with float32, and float32 with TF32 products: time, memory and the final loss."""
    for method, (record, settings) in subjects(tiny, data).items():
        if method == "sage":
            continue  # it sums in float32 and reports it
        for arithmetic, products in (("32", "highest"), ("32", "high"), ("bf16-mixed", "highest")):
            labels = {"method": method, "precision": arithmetic, "products": products}
            yield attempt(with_products, products, timed(
                method, record, settings, device, seconds=0.5 if tiny else 4, precision=arithmetic
            ), **labels)  # fmt: skip


def with_products(products: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    from hopstate.training.devices import matmul_precision

    with matmul_precision(products):  # type: ignore[arg-type]
        return measure()


def compiled(device: str, tiny: bool, data: Path) -> Lines:
    """The same methods eagerly and under torch.compile, whose first steps compile (`first_step_s`)."""
    for method, (record, settings) in subjects(tiny, data).items():
        for how in ("eager", "compiled"):
            seconds = 0.5 if tiny else 5
            change = None if how == "eager" else lambda model: model.compile(backend="eager" if tiny else "inductor")
            labels = {"method": method, "how": how}
            yield attempt(timed(method, record, settings, device, seconds=seconds, change=change), **labels)


MEASURES: dict[str, Callable[[str, bool, Path], Lines]] = {
    "scan": scan, "epochs": epochs, "lengths": lengths, "gmn": gmn, "top": top, "precision": precision,
    "compile": compiled,
}  # fmt: skip
