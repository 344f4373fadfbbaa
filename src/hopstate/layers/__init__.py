"""Modules that know tensors only."""
