"""A scorer with a memory accepts the read-only columns of a stream."""

import warnings
from pathlib import Path

import numpy as np
import torch

from hopstate.data.events import EventBatch
from hopstate.data.neighbor_store import NeighborStore
from hopstate.runs.load import load_run
from hopstate.runs.run import fit
from hopstate.streaming.memory_scorer import MemoryScorer
from made_events import repeating

SMALL = {"loop.progress": False, "loop.logger": "none", "loop.device": "cpu", "loop.epochs": 1}
SMALL |= {"model.dim": 5, "model.num_layers": 1, "evaluation.strategies": ["random"]}


def test_read_only_columns_give_no_warning(tmp_path: Path) -> None:
    stream = repeating()
    stream = stream.with_(t=stream.t.astype(float))  # needs no conversion, so that torch would share it
    run = fit("ctdg-ssm", stream, out=tmp_path / "run", config=SMALL)
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # otherwise once per process
    try:
        with load_run(run.path, stream) as (_, task), warnings.catch_warnings():
            warnings.simplefilter("error")
            scorer = task.scorer("test")
            assert isinstance(scorer, MemoryScorer)
            assert isinstance(scorer.inputs.store, NeighborStore)
            some = [column[10:30] for column in (stream.src, stream.dst, stream.t)]
            assert not any(column.flags.writeable for column in some)
            assert len(scorer.score(*some)) == 20
            scorer.observe(
                EventBatch(
                    event_ids=np.arange(50),
                    src=stream.src[:50],
                    dst=stream.dst[:50],
                    t=stream.t[:50],
                    edge_attr=stream.edge_attr[:50],
                )
            )
    finally:
        torch.set_warn_always(before)
