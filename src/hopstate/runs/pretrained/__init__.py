"""A trained run as a folder of safetensors and JSON that goes anywhere; `hopstate.runs.hub` makes it a run again.

Enters: the folder of a finished run. Leaves: `model.safetensors`, JSON files, `arrays.safetensors` (its splits, the
negatives of its evaluation, the ids of its nodes), `hopstate.json` with a SHA-256 of each, and the card, README.md.
No data, no state of streamed events, no path and no command line of the machine that trained it.

| what | where |
|---|---|
| writing, reading and checking such a folder | `travel` |
| the card: data, protocol, figures beside floors, settings, limits | `card` |
"""
