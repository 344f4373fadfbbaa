"""What a torch-geometric `TemporalData` holds as the columns of a stream, and the other way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hopstate.data.event_record import EventRecord
from hopstate.errors import DataError

if TYPE_CHECKING:
    from torch_geometric.data import TemporalData


def columns_of(data: TemporalData) -> dict[str, Any]:
    """Return src, dst, t, edge_attr (msg) and labels (y) of a `TemporalData` as arrays, and a name."""
    arrays = {name: getattr(data, name, None) for name in ("src", "dst", "t", "msg", "y")}
    columns = {name: None if value is None else value.detach().cpu().numpy() for name, value in arrays.items()}
    message = columns.pop("msg")
    if message is not None and message.ndim == 1:
        message = message[:, None]
    if message is not None and not message.shape[1]:
        message = None
    return columns | {"edge_attr": message, "labels": columns.pop("y"), "name": "temporal-data"}


def temporal_data_of(stream: EventRecord) -> TemporalData:
    """Return a `TemporalData` that owns copies: src, dst, t, msg (edge features) and y (labels, if any).

    Raises:
        DataError: the stream deletes edges or nodes, for which `TemporalData` has no place.
    """
    import torch
    from torch_geometric.data import TemporalData

    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.array(array))

    if stream.has_deletes:
        raise DataError(f"{stream.name} has events that delete, for which TemporalData has no place")
    message = np.zeros((len(stream), 0), np.float32) if stream.edge_attr is None else stream.edge_attr
    extra = {} if stream.labels is None else {"y": tensor(stream.labels)}
    return TemporalData(
        src=tensor(stream.src), dst=tensor(stream.dst), t=tensor(stream.t), msg=tensor(message), **extra
    )
