"""What is exported of a trained run: a module of tensors in, tensors out, with what each of them is.

A method gives it for its task (`methods.method.Method.export`); `runs.export` writes it. State stands among the inputs
and outputs; a program keeps nothing but weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Port:
    """An input or output.

    Args:
        name: as the program calls it.
        meaning: what it holds, for who calls it.
        axes: a name for each axis whose length the caller chooses, "" for each that the model fixes; ports that share
            a name share a length.
    """

    name: str
    meaning: str
    axes: tuple[str, ...]


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


@dataclass(frozen=True, kw_only=True)
class ExportSpec:
    """What is exported of a run.

    Args:
        module: takes the inputs in order and returns the output, or a tuple of several. It may use hopstate's
            operators: they are traced in their reference form (`hopstate.ops.use_reference_ops`).
        inputs: in the order of the module's arguments.
        outputs: what it returns.
        example: tensors of the inputs' shapes, every axis of free length two or longer.
        preprocessing: what the caller has to have done, in words.
        fill: queries → the inputs: of streams a tokenizer's answer, or `StateQuery`; of graphs what
            `hopstate.export_inputs` was given, None for all. None where a method of one's own does not say.
        reference: queries of graphs → the run's own first output for them, by the code that trained it.
        sample: queries of graphs that a check makes; None for all.
        left_out: what of the run no program holds, and why, in words; "" for nothing.
    """

    module: nn.Module
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    example: tuple[Tensor, ...]
    preprocessing: str
    fill: Callable[[Any], tuple[Tensor, ...]] | None = None
    reference: Callable[[Any], Tensor] | None = None
    sample: Any = None
    left_out: str = ""
