"""Explanations of a trained run: why a pair got its score, or a node its prediction.

`questions` opens a run folder and explains; `explain` attributes a score to past events or features; `similarity` shows
how similar the past events of a pair are to DyG-Mamba. Nothing is trained, and the run stays as it is.
"""
