"""Packed lists of past neighbours, last meetings and counts in common: definitions and compiled loops."""

from hopstate.ops.neighbors.neighbors import (
    PackedNeighbors,
    cooccurrence,
    cooccurrence_naive,
    last_meeting_naive,
    last_naive,
    neighbor_of,
)

__all__ = ["PackedNeighbors", "cooccurrence", "cooccurrence_naive", "last_meeting_naive", "last_naive", "neighbor_of"]
