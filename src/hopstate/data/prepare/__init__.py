"""Event tables of any size to a memory-mapped store: read in pieces, ids and order by an engine that needs no memory.

`prepare` is the door. A piece of the source becomes files of its own (`staging`), the engine numbers the distinct ids
and puts the events in order (`engine`), and the arrays are written one after the other (`store`).
"""

from hopstate.data.prepare.prepare import Prepared, prepare

__all__ = ["Prepared", "prepare"]
