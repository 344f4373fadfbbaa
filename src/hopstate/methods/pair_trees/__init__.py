"""Trees over the histories of pairs: features, how trees are grown and kept, and the method; see README.md."""

from hopstate.methods.pair_trees.method import METHODS, PairTreesRun

__all__ = ["METHODS", "PairTreesRun"]
