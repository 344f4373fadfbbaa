"""How near two nodes are by a graph's links alone: common neighbours, weighted or not, and personalised PageRank."""

from hopstate.ops.proximity.proximity import FEATURES, KINDS, Kind, Proximity, proximity_naive

__all__ = ["FEATURES", "KINDS", "Kind", "Proximity", "proximity_naive"]
