"""Files and other libraries' objects to records.

`read_graph`, `read_events` and `read_graph_set` choose among the other modules, each of which reads one kind of file.
"""
