"""Temporal models over event streams: node memories, scorers, replay and online inference.

`replay` scores each batch of a stream before the model observes it. `live` continues from a saved state with new events
and answers queries. Scorers read event histories (`history_scorer`) or a node memory (`memory_scorer`).
"""
