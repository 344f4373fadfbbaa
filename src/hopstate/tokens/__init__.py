"""Graphs and event streams turned into token records."""
