"""Named data sets and generators: what the papers use, where it is had, and data generated from a seed."""

from hopstate.datasets.registry import dataset_table, find_dataset, load_dataset

__all__ = ["dataset_table", "find_dataset", "load_dataset"]
