"""A linear map whose every row has the same bits whatever rows are beside it: definition and compiled loop."""

from hopstate.ops.row_linear.linear import RowLinear, row_linear, row_linear_naive

__all__ = ["RowLinear", "row_linear", "row_linear_naive"]
