"""Models that move through time: node memories, scorers, and the loops that show them events.

`replay` scores each batch of a stream before the model sees it. `live` goes on from a state over new events, and
answers queries. A scorer is fed from histories (`history_scorer`) or from a memory (`memory_scorer`).
"""
