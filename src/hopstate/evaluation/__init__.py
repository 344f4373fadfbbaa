"""Protocols and metrics; knows no model."""
