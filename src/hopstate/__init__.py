"""hopstate: graph learning where graphs are too large, too deep or too long-lived for ordinary models.

import hopstate
run = hopstate.fit("nagphormer", "minesweeper-generated")
print(run.metrics["test"], run.predict().head())
"""

from __future__ import annotations

from importlib import import_module

from hopstate.io.kernel_cache import ensure_kernel_cache

TYPE_CHECKING = False  # true for type checkers; importing typing costs more than the rest of this module

__version__ = "0.2.0"

# Module → public names. They are imported on first use, so that `import hopstate` stays fast. Type checkers read the
# imports below.
_PUBLIC = {
    "hopstate.runs.run": ("Run", "evaluate", "fit", "load", "predict"),
    "hopstate.runs.inference": ("check_leak", "node_outputs"),
    "hopstate.runs.compare": ("compare",),
    "hopstate.runs.ensemble": ("ensemble",),
    "hopstate.runs.queries": ("rank", "score"),
    "hopstate.runs.explain": ("explain",),
    "hopstate.runs.hub": ("from_pretrained", "push_to_hub"),
    "hopstate.runs.export": ("check_program", "export_inputs"),
    "hopstate.runs.reproduce": ("reproduce",),
    "hopstate.runs.tune": ("tune",),
    "hopstate.data.prepare": ("prepare",),
    "hopstate.data.graph": ("Graph",),
    "hopstate.data.events": ("EventStream",),
    "hopstate.data.neighbor_store": ("NeighborStore",),
    "hopstate.data.readers.read_graph": ("read_graph",),
    "hopstate.data.readers.read_events": ("read_events",),
    "hopstate.datasets.registry": ("load_dataset",),
    "hopstate.methods.nagphormer.model": ("NAGphormer",),
    "hopstate.methods.nagphormer.hops": ("hop_tokens",),
    "hopstate.methods.gmn.model": ("GMN",),
    "hopstate.methods.gmn.batches": ("gmn_inputs",),
    "hopstate.methods.dyg_mamba.model": ("DyGMamba",),
    "hopstate.methods.ctdg_ssm.model": ("CTDGSSM",),
    "hopstate.tokens.history": ("HistoryConfig", "HistoryTokenizer"),
    "hopstate.streaming.memory_scorer": ("ActiveEvents",),
    "hopstate.compensation.top.wrapper": ("top",),
    "hopstate.compensation.top.top": ("TopConfig",),
    "hopstate.sampling.samplers": ("LayerSampler", "ClusterSampler", "SaintSampler", "ShadowSampler", "UniformSampler"),
    "hopstate.sampling.neighbor_loader": ("NeighborLoader",),
    "hopstate.sampling.partition": ("partition",),
    "hopstate.sampling.event_batches": ("event_batches",),
    "hopstate.ops.selective_scan": ("selective_scan",),
}
# public name → module and the name there
_SOURCES: dict[str, tuple[str, str | None]] = {
    name: (module, name) for module, names in _PUBLIC.items() for name in names
}
_SOURCES |= {
    "stream": ("hopstate.runs.run", "score_stream"),
    "export": ("hopstate.runs.export", "export_run"),
    "inspect": ("hopstate.data.summary", "summarize"),
    "report": ("hopstate.runs.report", "write_report"),
    "errors": ("hopstate.errors", None),
    "metrics": ("hopstate.evaluation.metrics", None),
    "splits": ("hopstate.data.splits", None),
}

if TYPE_CHECKING:
    from hopstate import errors as errors
    from hopstate.compensation.top.top import TopConfig as TopConfig
    from hopstate.compensation.top.wrapper import top as top
    from hopstate.data import splits as splits
    from hopstate.data.events import EventStream as EventStream
    from hopstate.data.graph import Graph as Graph
    from hopstate.data.neighbor_store import NeighborStore as NeighborStore
    from hopstate.data.prepare import prepare as prepare
    from hopstate.data.readers.read_events import read_events as read_events
    from hopstate.data.readers.read_graph import read_graph as read_graph
    from hopstate.data.summary import summarize as inspect  # noqa: F401
    from hopstate.datasets.registry import load_dataset as load_dataset
    from hopstate.evaluation import metrics as metrics
    from hopstate.methods.ctdg_ssm.model import CTDGSSM as CTDGSSM
    from hopstate.methods.dyg_mamba.model import DyGMamba as DyGMamba
    from hopstate.methods.gmn.batches import gmn_inputs as gmn_inputs
    from hopstate.methods.gmn.model import GMN as GMN
    from hopstate.methods.nagphormer.hops import hop_tokens as hop_tokens
    from hopstate.methods.nagphormer.model import NAGphormer as NAGphormer
    from hopstate.ops.selective_scan import selective_scan as selective_scan
    from hopstate.runs.compare import compare as compare
    from hopstate.runs.ensemble import ensemble as ensemble
    from hopstate.runs.explain import explain as explain
    from hopstate.runs.export import check_program as check_program
    from hopstate.runs.export import export_inputs as export_inputs
    from hopstate.runs.export import export_run as export  # noqa: F401
    from hopstate.runs.hub import from_pretrained as from_pretrained
    from hopstate.runs.hub import push_to_hub as push_to_hub
    from hopstate.runs.inference import check_leak as check_leak
    from hopstate.runs.inference import node_outputs as node_outputs
    from hopstate.runs.queries import rank as rank
    from hopstate.runs.queries import score as score
    from hopstate.runs.report import write_report as report  # noqa: F401
    from hopstate.runs.reproduce import reproduce as reproduce
    from hopstate.runs.run import Run as Run
    from hopstate.runs.run import evaluate as evaluate
    from hopstate.runs.run import fit as fit
    from hopstate.runs.run import load as load
    from hopstate.runs.run import predict as predict
    from hopstate.runs.run import score_stream as stream  # noqa: F401
    from hopstate.runs.tune import tune as tune
    from hopstate.sampling.event_batches import event_batches as event_batches
    from hopstate.sampling.neighbor_loader import NeighborLoader as NeighborLoader
    from hopstate.sampling.partition import partition as partition
    from hopstate.sampling.samplers import ClusterSampler as ClusterSampler
    from hopstate.sampling.samplers import LayerSampler as LayerSampler
    from hopstate.sampling.samplers import SaintSampler as SaintSampler
    from hopstate.sampling.samplers import ShadowSampler as ShadowSampler
    from hopstate.sampling.samplers import UniformSampler as UniformSampler
    from hopstate.streaming.memory_scorer import ActiveEvents as ActiveEvents
    from hopstate.tokens.history import HistoryConfig as HistoryConfig
    from hopstate.tokens.history import HistoryTokenizer as HistoryTokenizer

__all__ = sorted(_SOURCES)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name in _SOURCES:
        path, attribute = _SOURCES[name]
        module = import_module(path)
        return module if attribute is None else getattr(module, attribute)
    raise AttributeError(f"module 'hopstate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SOURCES})


ensure_kernel_cache()
