"""What moves through time: node memories, models as scorers of what comes next, and the loops that show them events.

| what all share | function |
|---|---|
| score first, observe after | `replay.replay` |

`replay` scores each batch of a stream before the model sees it; `live` goes on over new events where a past ended. A
scorer is fed from histories (`history_scorer`) or from a memory (`memory_scorer`, `following`).
"""
