"""Attention over neighbours by a score an edge, as GAT has it: definition, compiled loop, gradients."""

from hopstate.ops.edge_attention.attention import edge_attention, edge_attention_naive

__all__ = ["edge_attention", "edge_attention_naive"]
