"""hopstate: graph learning where graphs are too large, too deep or too long-lived for ordinary models.

import hopstate
run = hopstate.fit("nagphormer", "minesweeper-generated")
print(run.metrics["test"], run.predict().head())
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hopstate.io.kernel_cache import ensure_kernel_cache

__version__ = "0.1.0"

# public name → module; imported when first used, so that `import hopstate` stays quick
_PUBLIC = {
    "fit": "hopstate.runs.api",
    "evaluate": "hopstate.runs.api",
    "predict": "hopstate.runs.api",
    "stream": "hopstate.runs.api",
    "node_outputs": "hopstate.runs.asking",
    "explain": "hopstate.runs.analysis.questions",
    "robustness": "hopstate.runs.analysis.questions",
    "open_run": "hopstate.runs.api",
    "tune": "hopstate.runs.tune",
    "Run": "hopstate.runs.api",
    "load_dataset": "hopstate.datasets.registry",
    "Graph": "hopstate.data.graph",
    "read_graph": "hopstate.data.readers.read_graph",
    "NAGphormer": "hopstate.methods.nagphormer.model",
}

if TYPE_CHECKING:
    from hopstate.data.graph import Graph
    from hopstate.data.readers.read_graph import read_graph
    from hopstate.datasets.registry import load_dataset
    from hopstate.methods.nagphormer.model import NAGphormer
    from hopstate.runs.analysis.questions import explain, robustness
    from hopstate.runs.api import Run, evaluate, fit, open_run, predict, stream
    from hopstate.runs.asking import node_outputs
    from hopstate.runs.tune import tune

__all__ = [
    "Graph",
    "NAGphormer",
    "Run",
    "evaluate",
    "explain",
    "fit",
    "load_dataset",
    "node_outputs",
    "open_run",
    "predict",
    "read_graph",
    "robustness",
    "stream",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'hopstate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])


ensure_kernel_cache()
