"""Questions to a trained run beyond its scores: why a pair got its score, and how much noise it bears.

`questions` opens a run folder and asks; `explain` takes a score apart into what each past event or feature added to it;
`similarity` shows how alike the past events of a pair are to DyG-Mamba;
`robustness` measures a link predictor whose view of the past is disturbed. A run folder, or a trained task, enters;
tables and figures drawn of them leave. Nothing is trained, and the run stays as it is.
"""
