"""Immutable typed records and how they are read, checked and stored."""
