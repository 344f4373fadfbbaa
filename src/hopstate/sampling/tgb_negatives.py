"""TGB's own negatives, as py-tgb loads them, in place of drawn ones.

TGB publishes them as pickles, which hopstate does not open; py-tgb does, and what it holds then goes in here:

    dataset = tgb.linkproppred.dataset.LinkPropPredDataset(name="tgbl-wiki")
    dataset.load_test_ns()
    negatives = tgb_negatives(dataset.negative_sampler.eval_set["test"], stream, splits.test)

`Negatives.save` keeps them as .npz, and `evaluate_link(..., negatives={("test", "many"): negatives})` ranks by them;
events with new nodes, where a split has any, take `negatives.take(splits.new_test)`.

Source: Huang et al. 2023, arXiv:2307.01026; the layout that py-tgb 2.3.0 reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hopstate.data.events import EventStream
from hopstate.errors import DataError
from hopstate.sampling.negative_sets import Negatives


def tgb_negatives(
    held: Mapping[tuple[Any, Any, Any], Iterable[Any]],
    stream: EventStream,
    rows: np.ndarray,
    *,
    nodes: np.ndarray | None = None,
) -> Negatives:
    """Return the negatives of a split's events.

    Args:
        held: (source, destination, time) → destinations, in TGB's numbers and in whole seconds.
        stream: the events.
        rows: (P,) int64 positions of the split's events; those that delete are passed over.
        nodes: (N,) int64 the row of each of TGB's numbers; None where they are the same, as for data read by
            "tgb:NAME", and for TGB's archives in JODIE's layout (tgbl-wiki).

    Raises:
        DataError: an event that the negatives do not know, or a destination that is no node of the stream.
    """
    rows = stream.additions(rows)
    numbers = np.arange(stream.num_nodes) if nodes is None else np.asarray(nodes, np.int64)
    number = np.full(stream.num_nodes, -1, np.int64)
    number[numbers] = np.arange(len(numbers))
    ends = number[stream.src[rows]].tolist(), number[stream.dst[rows]].tolist()
    found: list[np.ndarray] = []
    for event, key in enumerate(zip(*ends, stream.t[rows].astype(np.int64).tolist(), strict=True)):
        if key not in held:
            raise DataError(
                f"{stream.name}: TGB's negatives know no event {key} (position {rows[event]} of the stream); they are "
                "of another split or version of the data, or nodes are numbered otherwise: give nodes"
            )
        found.append(np.asarray(held[key]).astype(np.int64))
    dst = np.concatenate([np.empty(0, np.int64), *found])
    if len(dst) and not 0 <= dst.min() <= dst.max() < len(numbers):
        raise DataError(f"{stream.name}: TGB's negatives name nodes outside 0..{len(numbers) - 1}; give nodes")
    counts = np.array([len(part) for part in found], np.int64)
    return Negatives(
        rows=rows,
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        src=np.repeat(stream.src[rows], counts),
        dst=numbers[dst],
        strategy="many",
        seed=0,
        batch_size=len(rows),
        content_hash=stream.content_hash,
    )
