"""Named data sets and generators."""

from hopstate.datasets.registry import dataset_table, find_dataset, load_dataset

__all__ = ["dataset_table", "find_dataset", "load_dataset"]
