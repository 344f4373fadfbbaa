"""Which partitioner makes a run's clusters: its first start chooses, and all that is done with the run keeps to it."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from hopstate.errors import CheckpointError
from hopstate.io.opening import shown
from hopstate.methods.message_passing.batching import NODE_SETS, Batching
from hopstate.methods.method import Context
from hopstate.sampling.partition import MODULES, NAMES, Partitioner, first_installed
from hopstate.training.config import LoopConfig
from hopstate.training.progress import note


def with_partitioner(config: Batching, context: Context, loop: LoopConfig) -> Batching:
    """Return settings in which "auto" is the partitioner that makes the run's clusters, noted for data.json.

    A new run takes the first that is installed. A run that is resumed or applied takes its own; what is trained before
    KaMinPar was among them has none noted, and means METIS where it is installed, as it did then.

    Raises:
        CheckpointError: the run's data.json names no partitioner that there is.
    """
    if config.kind not in NODE_SETS or config.nodes != "clusters":
        return config
    if config.partitioner != "auto":
        context.noted["partitioner"] = config.partitioner
        return config
    known = context.begun()
    chosen = first_installed() if known is None else known.get("partitioner", first_installed(("metis",)))
    if not isinstance(chosen, str) or chosen not in NAMES:
        raise CheckpointError(f"{context.run}: data.json gives the partitioner as {shown(chosen)!r}; train again")
    context.noted["partitioner"] = chosen
    if context.trained is None:
        better = [f"hopstate[{how}]" for how in MODULES] if chosen == "bisection" and known is None else []
        more = f"; {better[0]} or {better[1]} cuts fewer edges" if better else ""
        note(loop, f"note: clusters by {NAMES[chosen]}{more}")
    return replace(config, partitioner=cast(Partitioner, chosen))
