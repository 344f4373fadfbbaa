"""Induced subgraphs, sampled neighbourhoods and cuts of a graph into clusters, on compressed sparse rows."""

from hopstate.ops.sampling.sampling import LocalGraph, Neighborhoods, bisected_clusters

__all__ = ["LocalGraph", "Neighborhoods", "bisected_clusters"]
