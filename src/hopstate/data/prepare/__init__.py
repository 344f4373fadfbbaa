"""Tables of events or edges of any size to a memory-mapped store, sorted by DuckDB or Spark."""

from hopstate.data.prepare.prepare import Prepared, prepare

__all__ = ["Prepared", "prepare"]
