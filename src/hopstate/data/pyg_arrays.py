"""What a torch-geometric `Data` holds as the arrays of a graph, and the other way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.graph_arrays import GraphArrays
from hopstate.data.readers.notes import notes_of_list
from hopstate.data.validate import SPLITS, clean_features
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import DataError

if TYPE_CHECKING:
    from torch_geometric.data import Data


def edges_of_pyg(data: Data, *, nan: str = "error", **fields: Any) -> tuple[np.ndarray, int | None, dict[str, Any]]:
    """Return edges (E, 2), the number of nodes, and options of `Graph.from_edges`, of what a `Data` holds.

    Taken are x, y, edge_index, edge_attr, edge_weight, masks, node_ids, class_names, and node_type of two sets.

    Edges are taken as they are stored (no reverse added, nothing dropped), unless fields say otherwise.

    Args:
        data: x and edge_attr may be sparse; adj_t stands in for edge_index.
        nan: "error" or "zero", for x.
        fields: options of `Graph.from_edges` and fields of `Graph`, over what data holds.

    Raises:
        DataError: no edge_index, or arrays that break a promise of `Graph`.
    """
    if getattr(data, "edge_index", None) is None and getattr(data, "adj_t", None) is None:
        raise DataError(f"a torch-geometric Data with edge_index is needed; this one holds {sorted(data.keys())}")
    edges = _edges(data)
    found: dict[str, Any] = {"x": _dense(data.get("x")), "y": _dense(data.get("y")), "source": "torch-geometric"}
    attr = _dense(data.get("edge_attr"))
    if found["x"] is not None:
        found["x"] = clean_features(found["x"], nan, f"{fields.get('source', 'Data')}: node features x")
    masks = {name: _mask(_dense(data.get(f"{name}_mask")), data.num_nodes) for name in SPLITS}
    found["masks"] = {name: mask for name, mask in masks.items() if mask is not None}
    if data.get("node_ids") is not None:
        found["node_ids"] = Vocabulary(np.asarray(data["node_ids"]))
    if data.get("node_type") is not None:
        found["node_type"] = _two_sets(np.asarray(_dense(data["node_type"])), edges)
    if data.get("class_names") is not None:
        found["class_names"] = tuple(data["class_names"])
    options: dict[str, Any] = {"undirected": False, "duplicates": "keep", "self_loops": "keep", "edge_attr": attr}
    options["edge_weight"] = _weights(data)
    options |= found | fields
    if options["undirected"]:
        options["notes"] = (*options.get("notes", ()), *notes_of_list(edges, int(data.num_nodes or 0), options))
    return edges, data.num_nodes, options


def pyg_of(graph: GraphArrays) -> Data:
    """Return a `Data` that owns copies of the arrays; (R, N) masks become (N, R) as torch-geometric has them."""
    import torch
    from torch_geometric.data import Data

    def tensor(array: np.ndarray | None) -> torch.Tensor | None:
        return None if array is None else torch.from_numpy(np.array(array))

    data = Data(
        x=tensor(graph.x),
        y=tensor(graph.y),
        edge_index=tensor(graph.edge_index()),
        edge_attr=tensor(graph.edge_attr),
        num_nodes=graph.num_nodes,
    )
    if graph.edge_weight is not None:
        data.edge_weight = tensor(graph.edge_weight)
    for name, mask in graph.masks.items():
        data[f"{name}_mask"] = tensor(mask.T)
    if graph.node_ids is not None:
        data["node_ids"] = graph.node_ids.ids.tolist()
    if graph.node_type is not None:
        data["node_type"] = tensor(graph.node_type.astype(np.int64))
    if graph.class_names is not None:
        data["class_names"] = list(graph.class_names)
    return data


def _two_sets(types: np.ndarray, edges: np.ndarray) -> np.ndarray | None:
    """Return types of nodes where edges join type 0 and type 1, None where they say something else."""
    first, second = types[edges].T
    known = np.isin(types, (-1, 0, 1)).all() and (first != second).all() and (np.minimum(first, second) == 0).all()
    return types.astype(np.int8) if known and len(edges) else None


def _edges(data: Data) -> np.ndarray:
    if data.get("edge_index") is not None:
        return np.asarray(data.edge_index.cpu()).T.reshape(-1, 2)
    targets, sources, _ = data.adj_t.coo()
    return np.stack([np.asarray(sources.cpu()), np.asarray(targets.cpu())], 1)


def _weights(data: Data) -> np.ndarray | None:
    """Return edge_weight, or the values of adj_t where that stands in for the edges."""
    if data.get("edge_index") is not None:
        return _dense(data.get("edge_weight"))
    values = data.adj_t.coo()[2]
    return None if values is None or values.ndim != 1 or bool((values == 1).all()) else np.asarray(values.cpu())


def _dense(value: Any) -> np.ndarray | None:
    if value is None:
        return None
    if hasattr(value, "to_dense"):
        value = value.to_dense()
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def _mask(mask: np.ndarray | None, num_nodes: int) -> np.ndarray | None:
    """Return (N,) or (R, N) from torch-geometric's (N,) or (N, R)."""
    if mask is None or mask.ndim == 1:
        return mask
    mask = mask.T if len(mask) == num_nodes else mask
    return mask[0] if len(mask) == 1 else mask
