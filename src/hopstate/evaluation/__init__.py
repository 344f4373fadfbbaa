"""Protocols, metrics, intervals, and the guard that nothing looks ahead; knows no model.

Scores of a scorer enter (see `streaming`); tables of metrics come out.
"""
