"""Mean, least, largest and standard deviation of neighbours' rows: definition, compiled loop, gradients."""

from hopstate.ops.neighbor_statistics.statistics import neighbor_statistics, neighbor_statistics_naive

__all__ = ["neighbor_statistics", "neighbor_statistics_naive"]
