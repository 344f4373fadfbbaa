"""Dense products for training on processors whose widest vectors torch's own library leaves unused."""

from hopstate.ops.products.dense import linear, linear_naive, pays

__all__ = ["linear", "linear_naive", "pays"]
