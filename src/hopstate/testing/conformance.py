"""The conformance suite: what every model must satisfy, whatever it computes.

A `ModelCase` says how a model is built and called; `check_model` runs every check on it. Models whose rows stand
alone (tokens, sequences) give `take`; models over a whole graph or a set give `permute` and `one`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from hopstate.random import torch_rng

# What one differently ordered sum of a few thousand terms costs, with a margin of about 10. The figures are the same
# on every machine; loosening one needs a written reason here.
TOLERANCE: dict[torch.dtype, float] = {
    torch.float64: 1e-10,
    torch.float32: 1e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.5e-2,
}

# Bounds for what is compared entry by entry (`atol`, `rtol`, `pytest.approx`), tightest first. Take the tightest that
# holds on every processor with a margin of about 10.
F64_LAST = 1e-15  # the last digit
F64_TIGHT = 1e-13  # a few roundings
F64 = 1e-12  # sums of tens of terms
F64_SUM = 1e-10  # sums of thousands of terms
F64_SOLVED = 1e-9  # systems, eigenpairs and integrals
F64_DEEP = 1e-8  # a whole network, or its gradients
F32_LAST = 1e-7  # the last digit
F32_TIGHT = 1e-6  # a few roundings
F32 = 1e-5  # sums of tens of terms
F32_SUM = 1e-4  # sums of thousands of terms, or a whole network
PROGRAM = 1e-5  # an exported program's logit z from the model's, as a part of 1 + |z|: runtimes sum in other orders
COARSE = 1e-3  # what is cut off by design, or rounded in files
HALF = 2e-3  # a rounding of float16


def relative_rmse(actual: Any, expected: Any) -> float:
    """Return |actual - expected| / |expected| in float64; |actual| where expected is all zeros, 0 where both are empty.

    Args:
        actual, expected: tensors or arrays of one shape.

    Raises:
        AssertionError: shapes differ.
    """
    a, e = _wide(actual), _wide(expected)
    assert a.shape == e.shape, f"shapes differ: {tuple(a.shape)}, expected {tuple(e.shape)}"
    size = float(e.norm()) if e.numel() else 0.0
    error = float((a - e).norm()) if e.numel() else 0.0
    return error / size if size else error


def assert_close_rmse(
    actual: Any, expected: Any, *, dtype: torch.dtype | None = None, name: str = "result", factor: float = 1.0
) -> None:
    """Assert that the relative RMSE is within the tolerance of dtype.

    Args:
        actual: tensor or array under test.
        expected: what it should be, usually in float64.
        dtype: whose tolerance holds; by default that of actual.
        name: what is compared, for the message.
        factor: multiplies the tolerance; anything but 1 needs a reason where it is written.

    Raises:
        AssertionError: shapes differ, a value is not finite on one side only, or the error is too large.
    """
    dtype = dtype or torch.as_tensor(actual).dtype
    a, e = _wide(actual), _wide(expected)
    assert a.shape == e.shape, f"{name}: shapes differ: {tuple(a.shape)}, expected {tuple(e.shape)}"
    finite = torch.isfinite(e)
    same = torch.allclose(a[~finite], e[~finite], equal_nan=True)
    assert same, f"{name}: NaN or infinities differ"
    assert torch.isfinite(a[finite]).all(), f"{name}: NaN or infinity where a number was expected"
    error, limit = relative_rmse(a[finite], e[finite]), factor * TOLERANCE[dtype]
    assert error <= limit, f"{name}: relative RMSE {error:.3g} exceeds {limit:.3g} ({dtype})"


def _wide(value: Any) -> Tensor:
    tensor = torch.from_numpy(value) if isinstance(value, np.ndarray) else torch.as_tensor(value)
    return tensor.detach().to("cpu", torch.float64)


Inputs = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class ModelCase:
    """How to build and call a model.

    Args:
        make: returns a new model with weights from torch's global generator.
        inputs: model(*inputs) → (n, C) tensor; float32, of several rows, all different.
        permute: (inputs, order) → inputs whose row i is the old row order[i], edges renumbered with the rows.
        take: (inputs, rows) → inputs of those rows only; None if rows depend on each other.
        one: inputs of a single row (for a graph: one node without edges). Needed if take is None.
    """

    make: Callable[[], nn.Module]
    inputs: Inputs
    permute: Callable[[Inputs, Tensor], Inputs]
    take: Callable[[Inputs, Tensor], Inputs] | None = None
    one: Inputs | None = None


def check_model(case: ModelCase) -> None:
    """Run every check on a model.

    Raises:
        AssertionError: the first broken promise, by name.
    """
    for check in (
        check_same_seed_same_result,
        check_gradient_reaches_every_parameter,
        check_checkpoint_round_trip,
        check_permutation_equivariance,
        check_batch_of_one,
        check_batches_are_independent,
    ):
        check(case)


def check_same_seed_same_result(case: ModelCase) -> None:
    """Two models of one seed agree bit for bit, in training (dropout on) and in every gradient."""
    (first, gradients), (second, again) = (_train_pass(case, seed=3) for _ in range(2))
    assert torch.equal(first, second), "same seed, same result: outputs differ"
    for name, gradient in gradients.items():
        assert torch.equal(gradient, again[name]), f"same seed, same result: gradients of {name} differ"
    model = _model(case)
    assert torch.equal(_output(model, case.inputs), _output(model, case.inputs)), "evaluation is not repeatable"


def check_gradient_reaches_every_parameter(case: ModelCase) -> None:
    """A loss that weighs all outputs at random gives every parameter a finite gradient that is not all zero."""
    _, gradients = _train_pass(case, seed=4, dropout=False)
    assert gradients, "the model has no parameters"
    for name, gradient in gradients.items():
        assert torch.isfinite(gradient).all(), f"the gradient of {name} is not finite"
        assert gradient.abs().max() > 0, f"no gradient reaches {name}"


def check_checkpoint_round_trip(case: ModelCase) -> None:
    """Weights written as safetensors and read into a model of another seed give the same outputs bit for bit."""
    model, other = _model(case, seed=5), _model(case, seed=6)
    expected = _output(model, case.inputs)
    assert not torch.equal(_output(other, case.inputs), expected), "two seeds gave one model: weights are not random"
    other.load_state_dict(load(save({k: v.contiguous() for k, v in model.state_dict().items()})))
    assert torch.equal(_output(other, case.inputs), expected), "a reloaded model gives other outputs"


def check_permutation_equivariance(case: ModelCase) -> None:
    """Renumbering the rows renumbers the outputs and changes nothing else."""
    model = _model(case)
    expected = _output(model, case.inputs)
    order = torch.randperm(len(expected), generator=torch_rng(1))
    actual = _output(model, case.permute(case.inputs, order))
    assert_close_rmse(actual, expected[order], name="permuted outputs")


def check_batch_of_one(case: ModelCase) -> None:
    """A single row gives a finite (1, C) output: the output of the same row in a batch, if rows are independent."""
    model = _model(case)
    whole = _output(model, case.inputs)
    if case.one is not None:
        alone = _output(model, case.one)
        assert alone.shape == (1, *whole.shape[1:]), f"one row gave an output of shape {tuple(alone.shape)}"
        assert torch.isfinite(alone).all(), "one row gave an output that is not finite"
    if case.take is not None:
        rows = [_output(model, case.take(case.inputs, torch.tensor([i]))) for i in range(len(whole))]
        assert_close_rmse(torch.cat(rows), whole, name="rows alone")  # one logit near zero has no scale of its own
    assert case.one is not None or case.take is not None, "a model case gives `take` or `one`"


def check_batches_are_independent(case: ModelCase) -> None:
    """If rows are independent, each row has the same output in batches of any size and order."""
    if case.take is None:
        return
    model = _model(case)
    expected = _output(model, case.inputs)
    order = torch.randperm(len(expected), generator=torch_rng(2))
    for size in (2, 3):
        for rows in order.split(size):
            assert_close_rmse(
                _output(model, case.take(case.inputs, rows)), expected[rows], name=f"rows {rows.tolist()}"
            )


def _model(case: ModelCase, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return case.make().eval()


def _output(model: nn.Module, inputs: Inputs) -> Tensor:
    with torch.no_grad():
        return model(*inputs)


def _train_pass(case: ModelCase, *, seed: int, dropout: bool = True) -> tuple[Tensor, dict[str, Tensor]]:
    """Return outputs and the gradients of a random weighing of them."""
    model = _model(case, seed).train(dropout)
    output = model(*case.inputs)
    weight = torch.randn(output.shape, generator=torch_rng(seed))
    (output * weight).sum().backward()
    missing = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert not missing, f"no gradient reaches {', '.join(missing)}"
    return output.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
