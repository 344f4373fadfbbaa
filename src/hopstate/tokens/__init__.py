"""Graphs and event streams turned into token records that several methods share.

`history` packs the past events of a query's ends, `encodings` are columns of Laplacian vectors and walks for nodes.
Records enter, packed arrays and tensors leave; nothing here is trained.
"""
