"""A run from its settings to its answers: what the command line and Python users both call.

`run` fits and loads runs; `data` reads what settings name, `load` takes a finished run up again; `inference`, `stream`,
`queries` and `explain` apply it; `tune` searches settings, `reproduce` runs the papers' tables, `report` shows runs and
results on a page, `export` and `hub` hand runs on.
"""
