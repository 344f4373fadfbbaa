"""One reader per kind of file; `hopstate.data.io.read_graph` chooses among them."""
