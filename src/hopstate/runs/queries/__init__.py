"""Questions to a trained temporal model of links: how likely are these pairs, who comes next, why; what a run is.

`session` opens a run over what it knows, `names` turns ids and times into rows, `calibrated` scores into probabilities,
`first_stage` keeps the candidates that a costly model then ranks, `reasons` says why, `card` what a run is.
"""

from hopstate.runs.queries.ask import rank, score

__all__ = ["rank", "score"]
