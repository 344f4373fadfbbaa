"""Induced subgraphs, sampled neighbourhoods and cuts of a graph into parts, on compressed sparse rows."""

from hopstate.ops.sampling.sampling import LocalGraph, Neighborhoods, bisected_parts

__all__ = ["LocalGraph", "Neighborhoods", "bisected_parts"]
