"""CTDG-SSM's logits of pairs with its weights as they are now: what it says within `alike`, to the bit, sooner.

A pair asks for some forty small operations, each of which torch takes longer to begin than it takes itself. Here
weights are packed once, and the compiled loops are called by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hopstate.layers.alike import padded
from hopstate.layers.kept import Kept
from hopstate.layers.pair_history import PackedPairHistory, PairHistory
from hopstate.layers.time import TimeEncoding
from hopstate.ops.row_linear import RowLinear


def compiled(
    model: nn.Module,
    pair: Iterable[nn.Module],
    gap_out: TimeEncoding | None,
    gaps: int,
    history: PairHistory | None,
    decoder: nn.Module,
) -> CompiledPairs | None:
    """Return a model's decoder of pairs as it is now; None beyond single and double precision on the CPU.

    Args:
        model: what the others are parts of; see `CompiledPairs`.
    """
    like = next(decoder.parameters(), None)
    if like is None or like.device.type != "cpu" or like.dtype not in (torch.float32, torch.float64):
        return None
    return _kept.of(model, lambda: CompiledPairs(pair, gap_out, gaps, history, decoder))


class CompiledPairs:
    """Logits (e,) of pairs whose ends are represented; see `methods.ctdg_ssm.model.CTDGSSM.link_logits`.

    Args:
        pair: maps of both ends to what is multiplied, or none.
        gap_out: of the gaps in time, None where there are none.
        gaps: columns of these.
        history: of what the pair's history tells, None where it is not read.
        decoder: see `heads.make_decoder`. All in single or double precision on the CPU; later changes are not seen.
    """

    def __init__(
        self,
        pair: Iterable[nn.Module],
        gap_out: TimeEncoding | None,
        gaps: int,
        history: PairHistory | None,
        decoder: nn.Module,
    ) -> None:
        self._pair, self._decoder = _linear(pair), _linear(decoder.modules())
        self._times = None if gap_out is None else _Times(gap_out)
        self._gaps, self._history = gaps, None if history is None else PackedPairHistory(history)

    def __call__(self, ends: tuple[Tensor, Tensor], gap: Tensor) -> Tensor:
        """Return logits of pairs whose ends (e, w) each are represented, with their gaps and features (e, G).

        Raises:
            ShapeError: other widths than those of the weights.
        """
        parts = [end.contiguous().numpy() for end in ends]
        if self._pair:
            parts.append(self._pair[0](parts[0]) * self._pair[1](parts[1]))
        if self._times is not None:
            parts.append(self._times(gap[:, : self._gaps]))
        if self._history is not None:
            parts.append(self._history(gap[:, self._gaps :]))
        first, *rest = self._decoder
        y = first(np.concatenate(parts, 1))
        for linear in rest:
            y = linear(padded(F.gelu, torch.from_numpy(y)).numpy())
        return torch.from_numpy(y)[:, 0]


class _Times:
    """`TimeEncoding` of several gaps side by side."""

    def __init__(self, encoding: TimeEncoding) -> None:
        self.omega = encoding.omega.detach()
        self.phase = None if encoding.phase is None else encoding.phase.detach()

    def __call__(self, gap: Tensor) -> np.ndarray:
        angle = gap.to(self.omega.dtype).unsqueeze(-1) * self.omega
        return padded(torch.cos, angle if self.phase is None else angle + self.phase).flatten(1).numpy()


def _linear(modules: Iterable[nn.Module]) -> list[RowLinear]:
    return [RowLinear(part.weight, part.bias) for part in modules if isinstance(part, nn.Linear)]


_kept: Kept[CompiledPairs] = Kept()
