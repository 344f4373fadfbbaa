"""Cosine encodings of time differences, cos(omega_i gap + phase_i), fixed or learnable, and encodings of counts.

Source of time encodings: Cong et al. 2023, arXiv:2302.11636 (fixed omega_i = alpha^{-(i-1)/beta}); Xu et al. 2020,
arXiv:2002.07962, as in DyGFormer (arXiv:2303.13047), with learnable omega and phase, where omega starts at 1 and spans
nine decades.
Source of count encodings: Yu et al. 2023, arXiv:2303.13047, section 3.3; DyG-Mamba, arXiv:2408.06966, equation 5.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.errors import ConfigError, ShapeError
from hopstate.layers.typed import TypeEmbedding, add_types
from hopstate.types import Float, shapecheck


class CountEncoding(nn.Sequential):
    """f(c_u) + f(c_v) of two counts, where f is a two-layer perceptron on a scalar.

    Args:
        dim: width of the encoding.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(nn.Linear(1, dim), nn.ReLU(), nn.Linear(dim, dim))

    def table(self, largest: int) -> Tensor:
        """Return (largest + 1, dim): f of 0, 1, ..., largest, computed once per count."""
        weight = next(self.parameters())
        return self(torch.arange(largest + 1, device=weight.device, dtype=weight.dtype).unsqueeze(-1))

    def of(self, counts: Tensor, largest: int) -> Tensor:
        """Return (token, dim) encodings of counts (token, 2), none above largest."""
        if torch.compiler.is_exporting():  # no table: its size would be that of the example
            return self(counts.to(next(self.parameters()).dtype).unsqueeze(-1)).sum(1)
        return F.embedding(counts, self.table(largest)).sum(1)


class TimeEncoding(nn.Module):
    """Cosine time encoding cos(omega_i gap + phase_i).

    Args:
        omega: (dim,) initial frequencies, in 1 / (time unit).
        learn: train omega and phase. Otherwise omega is a buffer, without phase.
    """

    omega: Tensor
    phase: Tensor | None

    def __init__(self, omega: Float[Tensor, "channel"], *, learn: bool) -> None:
        super().__init__()
        if learn:
            self.omega = nn.Parameter(omega.clone())
            self.phase = nn.Parameter(torch.zeros_like(omega))
        else:
            self.register_buffer("omega", omega.clone())
            self.phase = None

    @property
    def dim(self) -> int:
        """Number of frequencies."""
        return len(self.omega)

    @classmethod
    def geometric(cls, dim: int) -> TimeEncoding:
        """Return the fixed encoding omega_i = sqrt(dim)^{-(i-1)/sqrt(dim)}.

        Raises:
            ConfigError: dim under 1.
        """
        if dim < 1:
            raise ConfigError(f"a time encoding needs dim >= 1; got {dim}")
        root = math.sqrt(dim)
        power = -torch.arange(dim, dtype=torch.float64) / root
        return cls((torch.tensor(root, dtype=torch.float64) ** power).float(), learn=False)

    @classmethod
    def between(cls, dim: int, min_frequency: float, max_frequency: float, *, learn: bool) -> TimeEncoding:
        """Return omega log-spaced from max_frequency to min_frequency; learn makes omega and a phase parameters.

        Raises:
            ConfigError: dim is below 1, or not 0 < min_frequency <= max_frequency.
        """
        if dim < 1 or not 0 < min_frequency <= max_frequency < math.inf:
            raise ConfigError(
                f"a time encoding needs dim >= 1 and 0 < min_frequency <= max_frequency; "
                f"got {dim}, {min_frequency}, {max_frequency}"
            )
        ends = math.log10(max_frequency), math.log10(min_frequency)
        return cls((10.0 ** torch.linspace(*ends, dim, dtype=torch.float64)).float(), learn=learn)

    @shapecheck
    def forward(self, gap: Float[Tensor, "*token"]) -> Float[Tensor, "*token channel"]:
        """Return the encoding of gaps, in the time unit of omega."""
        angle = gap.to(self.omega.dtype).unsqueeze(-1) * self.omega
        return torch.cos(angle if self.phase is None else angle + self.phase)


class AlignedProjections(nn.ModuleDict):
    """Project each encoding of a token to one width, and concatenate the results.

    Encodings without columns or values give zeros. A typed encoding adds a vector per type to its projection.

    Args:
        widths: width of each encoding, 0 for none.
        dim: width of each projection.
        patch_size: number of consecutive tokens that are projected together.
        types: number of types of each typed encoding, 0 for none.
    """

    def __init__(
        self, widths: dict[str, int], dim: int, *, patch_size: int = 1, types: dict[str, int] | None = None
    ) -> None:
        super().__init__({name: nn.Linear(patch_size * width, dim) for name, width in widths.items() if width})
        self.update({f"{name}_type": TypeEmbedding(count, dim) for name, count in (types or {}).items() if count})
        self.widths, self.dim = widths, dim
        self.zero = nn.Buffer(torch.zeros(1), persistent=False)  # of the weights' device and dtype

    def forward(self, values: dict[str, Tensor | None], rows: int) -> Tensor:
        """Return (rows, dim * encodings) of the values by name, each (rows * patch_size, width).

        The codes of an encoding's types are `<name>_type`, (rows * patch_size,).
        """
        return torch.cat([self._typed(name, values, rows) for name in self.widths], 1)

    def _typed(self, name: str, values: dict[str, Tensor | None], rows: int) -> Tensor:
        of_type = f"{name}_type"
        projected = self._project(name, values.get(name), rows)
        return add_types(projected, self[of_type], values.get(of_type)) if of_type in self else projected

    def _project(self, name: str, values: Tensor | None, rows: int) -> Tensor:
        if name not in self:
            return self.zero.new_zeros(rows, self.dim)
        linear = self[name]
        assert isinstance(linear, nn.Linear)
        if values is None:
            return linear.bias.expand(rows, -1)
        return linear(values.to(linear.weight.dtype).reshape(rows, linear.in_features))


def check_widths(dims: tuple[int, int], x: Tensor | None, edge_attr: Tensor | None) -> None:
    """Raise ShapeError if node or event features do not have the model's widths dims."""
    for what, values, dim in zip(("node", "edge"), (x, edge_attr), dims, strict=True):
        if values is not None and values.shape[1] != dim:
            raise ShapeError(f"tokens have {values.shape[1]} {what} features, the model was built for {dim}")
