"""The arrays of a graph, as they are given: what is checked, stored and converted on the way to and from a `Graph`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from hopstate.data.features import FeatureTable
from hopstate.data.vocabulary import Vocabulary


class Copied:
    """A frozen dataclass of arrays that can be pickled and copied, without what was computed from them."""

    def __getstate__(self) -> dict[str, Any]:
        own = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {name: dict(value) if isinstance(value, MappingProxyType) else value for name, value in own.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            found = {"": value} if not isinstance(value, dict) else value
            for array in found.values():
                if isinstance(array, np.ndarray):
                    array.flags.writeable = False
            object.__setattr__(self, name, MappingProxyType(value) if isinstance(value, dict) else value)


@dataclass(frozen=True, eq=False, kw_only=True)
class GraphArrays(Copied):
    """Fields of a graph; a `Graph` says what each is, and promises that they agree."""

    indptr: np.ndarray
    indices: np.ndarray
    x: np.ndarray | None = None
    y: np.ndarray | None = None
    edge_attr: np.ndarray | None = None
    edge_weight: np.ndarray | None = None
    masks: Mapping[str, np.ndarray] = field(default_factory=dict)
    node_ids: Vocabulary | None = None
    node_type: np.ndarray | None = None
    class_names: tuple[str, ...] | None = None
    name: str = "graph"
    source: str = ""
    table: FeatureTable | None = None
    edge_table: FeatureTable | None = None
    notes: tuple[str, ...] = ()

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Stored entries: an undirected edge counts twice, a self-loop once."""
        return len(self.indices)

    @property
    def two_sets(self) -> bool:
        """Whether links join nodes of two sets, such as users and items."""
        return self.node_type is not None

    @cached_property
    def degree(self) -> np.ndarray:
        """(N,) int64 out-degrees; `incoming.count` has the in-degrees."""
        return np.diff(self.indptr)

    def edge_index(self) -> np.ndarray:
        """Return (2, E) int64: sources above targets, in stored order."""
        return np.stack([np.repeat(np.arange(self.num_nodes), self.degree), self.indices])
