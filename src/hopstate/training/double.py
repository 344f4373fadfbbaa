"""Training in 64 bits, whatever records a model takes."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from lightning_fabric.plugins.precision.double import DoublePrecision


class Double(DoublePrecision):
    """Weights and inputs in float64, inputs that are frozen records too."""

    def convert_input(self, data: Any) -> Any:
        """Return a model's input with float64 in place of narrower numbers."""
        if is_dataclass(data) and not isinstance(data, type):
            return replace(data, **{f.name: self.convert_input(getattr(data, f.name)) for f in fields(data)})
        if isinstance(data, tuple):
            values = [self.convert_input(value) for value in data]
            return type(data)(*values) if hasattr(data, "_fields") else tuple(values)
        if isinstance(data, dict):
            return {key: self.convert_input(value) for key, value in data.items()}
        return super().convert_input(data)
