"""How a big graph or a long stream is cut: partitions, samplers, subgraphs, batches of events, negatives, prefetching.

Records enter; node sets, adjacencies and batches come out, each fixed by (seed, epoch, number). What stands for the
neighbours that a batch lacks is handed in (`subgraph.Compensation`).
"""
