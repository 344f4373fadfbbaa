"""Attention whose every query has the same bits whatever is computed beside it: definition and compiled loop."""

from hopstate.ops.row_attention.attention import row_attention, row_attention_naive

__all__ = ["row_attention", "row_attention_naive"]
