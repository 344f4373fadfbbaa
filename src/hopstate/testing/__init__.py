"""Assertions, strategies and the conformance suite that every model passes."""
