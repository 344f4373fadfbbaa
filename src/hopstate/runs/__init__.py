"""A run from its settings to its answers: what the command line and Python users both call.

`run` trains, `load` opens a finished run and `data` reads what its settings name. `inference` evaluates and predicts,
`stream` scores new events, `queries` scores and ranks pairs, `explain` says why. `tune` searches settings, `reproduce`
runs the papers' tables, `report` shows runs and results on a page, `export` and `hub` hand
runs on.
"""
