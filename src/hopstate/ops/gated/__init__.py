"""Means of neighbours' messages under gates: definition, compiled loop, gradients."""

from hopstate.ops.gated.gated import gated_mean, gated_mean_naive

__all__ = ["gated_mean", "gated_mean_naive"]
