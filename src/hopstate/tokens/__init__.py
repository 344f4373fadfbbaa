"""Token sequences made from graphs and event streams, shared by several methods.

`history` packs past events of query nodes, and `encodings` computes positional encodings. Nothing here is trained.
"""
