"""A run from its settings to its answers: what the command line and Python users both call.

`run` fits, evaluates, predicts and streams; `data` reads what settings name, `load` takes a finished run up again,
`going_on` its past; `tune` searches settings; `analysis` asks a trained run, `reproduce` runs the papers' tables,
`report` shows runs and results on a page.
"""
