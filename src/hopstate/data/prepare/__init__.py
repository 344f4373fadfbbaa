"""Tables of events or edges of any size to a memory-mapped store: read in pieces, ids and order by an engine on disk.

`prepare` is the door. A piece of the source becomes files of its own (`staging`), the engine numbers the distinct ids
and puts the rows in order (`engine`), and the arrays are written one after the other (`write`, `graph`).
"""

from hopstate.data.prepare.prepare import Prepared, prepare

__all__ = ["Prepared", "prepare"]
