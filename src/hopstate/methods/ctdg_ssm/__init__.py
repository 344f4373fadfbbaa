"""CTDG-SSM (arXiv:2606.04672): a memory a node that every batch of events moves, by inputs and by the graph's change.

| CTDG-SSM, arXiv:2606.04672 | function |
|---|---|
| Theorem 4.2, Eq. 6: one step | `hippo.HippoCell`, `PolynomialFilter` |
| Sec. 5: active nodes, graph before and after a batch | `streaming.active_batch.ActiveBatch`, `recent_context` |
| Alg. 1 and 2: links and nodes scored from the memory | `model.CTDGSSM`, `model.Readout` |
| Alg. 3: a batch of events updates the memory (`update`) | `model.CTDGSSM` |
| Alg. 3, lines 3-6, 26-30 | `ops.filters.quadrature.evolve` |
| static embeddings | `model.StaticEmbedding` |
| training through time | `training.tasks.memory.MemoryWindows` |
| streaming inference | `streaming.live.continue_stream`, `data.stream_state.StreamState` |
| sequence classification | `datasets.temporal_generators.path_sequences`, `training.tasks.sequence.SequenceTask` |
"""

# names of methods → the module here that defines them
METHODS = {"ctdg-ssm": "method", "ctdg-ssm-nodes": "method", "ctdg-ssm-sequences": "sequences"}
