"""Data cards: what a record holds, and what looks wrong about it, before anything is trained.

`card` tells of graphs and streams, `set_card` of sets of graphs, `targets` of what is to be predicted; `plots` draws
degrees, times and classes. Records enter; facts and doubts leave as a `Card` (text, or a dict for JSON), and figures.
"""
