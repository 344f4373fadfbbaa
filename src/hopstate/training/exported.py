"""What is exported of a trained run: a module of tensors in, tensors out, with what each of them is.

A method gives it for its task (`methods.method.Method.export`); `runs.export` writes it. State stands among the inputs
and outputs; a program keeps nothing but weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

Tensors = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Port:
    """An input or output.

    Args:
        name: as the program calls it.
        meaning: what it holds, for who calls it.
        axes: a name for each axis whose length the caller chooses, "" for each that the model fixes; ports that share
            a name share a length.
        example: of an input, a tensor of its shape and dtype, every axis of free length two or longer.
    """

    name: str
    meaning: str
    axes: tuple[str, ...]
    example: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class StateQuery:
    """Queries to a model of streams that holds a memory.

    Args:
        follower: the model over a past, as it stands for the queries.
        ends: (1 or 2, Q) rows of nodes, or of sources and targets.
        t: (Q,) times.
    """

    follower: Any
    ends: np.ndarray
    t: np.ndarray


class Program(nn.Module):
    """Tensors in the order of inputs, or by name → what a model says of the input record that is made of them.

    Args:
        model: the model, as it is trained.
        inputs: in order.
        call: model and tensors by name → its answer.
    """

    def __init__(self, model: nn.Module, inputs: Sequence[Port], call: Callable[[Any, Tensors], Any]) -> None:
        super().__init__()
        self.model, self.names, self.call = model, tuple(port.name for port in inputs), call

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor | tuple[Tensor, ...]:
        return self.call(self.model, dict(zip(self.names, inputs)) | named)


@dataclass(frozen=True, kw_only=True)
class ExportSpec:
    """What is exported of a run.

    Args:
        module: takes the inputs in order and returns the output, or a tuple of several. It may use hopstate's
            operators: they are traced in their reference form (`hopstate.ops.use_reference_ops`).
        inputs: in the order of the module's arguments, with examples.
        outputs: what it returns.
        preprocessing: what the caller has to have done, in words.
        fill: queries → at least the inputs, by name: of streams a tokenizer's answer, or `StateQuery`; of graphs what
            `hopstate.export_inputs` was given, None for all. None where a method of one's own does not say.
        reference: queries of graphs → the run's own first output for them, by the code that trained it.
        sample: queries of graphs that a check makes; None for all.
        left_out: what of the run no program holds, and why, in words; "" for nothing.
    """

    module: nn.Module
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    preprocessing: str
    fill: Callable[[Any], Mapping[str, Tensor | None]] | None = None
    reference: Callable[[Any], Tensor] | None = None
    sample: Any = None
    left_out: str = ""

    @property
    def example(self) -> tuple[Tensor, ...]:
        """Tensors of the inputs' shapes."""
        return tuple(port.example for port in self.inputs if port.example is not None)

    def filled(self, queries: Any) -> tuple[Tensor, ...]:
        """Return the inputs for queries, in order, in the program's precision."""
        assert self.fill is not None
        given, found = self.fill(queries), []
        for port, like in zip(self.inputs, self.example, strict=True):
            value = given[port.name]
            assert value is not None, port.name
            found.append(value.to(like.dtype))
        return tuple(found)
