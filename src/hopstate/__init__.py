"""hopstate: graph learning where graphs are too large, too deep or too long-lived for ordinary models."""

__version__ = "0.1.0"
