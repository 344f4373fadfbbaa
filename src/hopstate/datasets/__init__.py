"""Named data sets and generators: what the papers use, where it is had, and data made here without a download.

`catalogue` lists them (`entry` says what of each), `registry` finds and loads one, `download` fetches and checks a
file; `generators`, `range_generators`, `temporal_generators`, `bloc_streams` and `club_streams` make data from a seed.
"""

from hopstate.datasets.registry import dataset_table, find_dataset, load_dataset

__all__ = ["dataset_table", "find_dataset", "load_dataset"]
