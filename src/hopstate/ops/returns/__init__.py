"""Return probabilities of random walks without dense powers: definition and compiled loop."""

from hopstate.ops.returns.returns import return_probabilities, return_probabilities_naive, walk_sums

__all__ = ["return_probabilities", "return_probabilities_naive", "walk_sums"]
