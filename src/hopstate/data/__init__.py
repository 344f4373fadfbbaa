"""Immutable records of graphs, sets of graphs and event streams; how they are checked, split, looked up in and stored.

| what all share | function |
|---|---|
| scales and fillings of features | `preprocessing.FeatureScaler`, `runs.data.preprocess` |

Files enter through `readers`; out come `Graph`, `GraphSet`, `EventStream` and, for live runs, `StreamState`. Ids are
rows 0..N-1; a `Vocabulary` holds the user's own. `summary` describes a record and lists what looks wrong in it.
"""
