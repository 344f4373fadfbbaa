"""Inputs of nodes without features: a code of random signs for each node, from which a network's first layer learns.

A code is a hash of the node's id, so that a node keeps it in another file, and a node that is new to a run has one too.
Products of codes are near those of one-hot vectors (random projections), so that propagated codes tell neighbourhoods
apart as one-hot vectors do; the first layer turns codes into learned vectors.
"""

from __future__ import annotations

import numpy as np

from hopstate.data.graph import Graph

SIGNS = 64
MOST = 1 << 22  # nodes with codes: 1 GiB of them; more nodes have one constant input


def with_codes(graph: Graph) -> Graph:
    """Return a graph without features with a code for each node, or with one constant if there are too many nodes."""
    if graph.num_nodes > MOST:
        told = f"no node features: all of the {graph.num_nodes:,} nodes have one constant input"
        return graph.with_(x=np.ones((graph.num_nodes, 1), np.float32), notes=(*graph.notes, told))
    told = (
        f"no node features: the input of a node is a code of {SIGNS} random signs made from its id, from which the "
        "first layer learns; a node that is new in prediction gets its own code"
    )
    return graph.with_(x=_codes(graph), notes=(*graph.notes, told))


def _codes(graph: Graph) -> np.ndarray:
    """Return (N, SIGNS) float32 signs, each a bit of a hash of the node's id."""
    from pandas.util import hash_array

    ids = np.arange(graph.num_nodes) if graph.node_ids is None else graph.node_ids.ids
    bits = hash_array(ids if ids.dtype.kind in "iu" else ids.astype(object)).astype("<u8").view(np.uint8)
    return np.unpackbits(bits).reshape(graph.num_nodes, SIGNS).astype(np.float32) * 2 - 1


__all__ = ["with_codes"]
