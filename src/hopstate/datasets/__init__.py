"""Named datasets and synthetic dataset generators."""

from hopstate.datasets.registry import dataset_table, find_dataset, load_dataset

__all__ = ["dataset_table", "find_dataset", "load_dataset"]
