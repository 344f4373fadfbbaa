"""The step that follows the time between events (DyG-Mamba, equation 11): definition, loop, gradients."""

from hopstate.ops.span_step.step import span_step, span_step_naive

__all__ = ["span_step", "span_step_naive"]
