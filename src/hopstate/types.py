"""Shape annotations and the names of tensor axes.

Annotations such as ``Float[Tensor, "node feature"]`` come from jaxtyping, which is imported only if the environment
variable ``HOPSTATE_TYPECHECK`` is ``1``, as in the tests. `shapecheck` then also verifies the shapes of each call.

Axes: node, edge, hop, token, feature, class, batch, length, channel, state.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
CHECKING = os.environ.get("HOPSTATE_TYPECHECK") == "1"

if TYPE_CHECKING or CHECKING:
    from jaxtyping import Bool, Float, Int, Num
else:

    class _Shape:
        """Placeholder for jaxtyping's types when shapes are not checked: X[kind, "axes"] is kind."""

        def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
            return item[0]

    Bool = Float = Int = Num = _Shape


def shapecheck(function: F) -> F:
    """Verify the annotated shapes of each call if HOPSTATE_TYPECHECK=1; otherwise return the function unchanged."""
    if not CHECKING:
        return function
    import torch
    from beartype import beartype
    from jaxtyping import jaxtyped

    checked = jaxtyped(typechecker=beartype)(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        # a check that compares lengths would fix those that a compiled or exported program leaves free
        return (function if torch.compiler.is_compiling() else checked)(*args, **kwargs)

    return call  # type: ignore[return-value]


__all__ = ["CHECKING", "Bool", "Float", "Int", "Num", "shapecheck"]
