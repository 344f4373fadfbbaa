"""Attention whose queries do not know of each other: the definition, and the same bits however far it is padded."""

import pytest
import torch
import torch.nn.functional as F

from hopstate.layers.alike import alike
from hopstate.layers.packed_attention import CrossAttention, PackedLayout, PackedTransformerBlock
from hopstate.ops.row_attention import row_attention, row_attention_naive
from hopstate.testing.asserts import F32_SUM, F64

INF = float("inf")


def drawn(batch: int, heads: int, queries: int, keys: int, dim: int, kind: torch.dtype) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(batch + keys)
    q, k, v = (torch.randn(batch, heads, n, dim, generator=rng, dtype=kind) * 3 for n in (queries, keys, keys))
    bias = torch.randint(1, 9, (batch, 1, 1, keys), generator=rng).to(kind).log()
    hidden = torch.rand(batch, 1, 1, keys, generator=rng) < 0.3
    hidden[..., 0] = False
    return [q, k, v, bias.masked_fill(hidden, -INF)]


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(0, 1, 3, 3, 4), (1, 1, 1, 1, 1), (3, 2, 5, 17, 7), (2, 3, 33, 16, 50)])
def test_the_definition(sizes: tuple[int, ...], kind: torch.dtype) -> None:
    q, k, v, bias = drawn(*sizes, kind)
    exact = row_attention_naive(*(part.double() for part in (q, k, v, bias)))
    found = row_attention(q, k, v, bias)
    assert found.dtype == kind
    assert torch.allclose(found.double(), exact, rtol=0, atol=F32_SUM if kind == torch.float32 else F64)
    torch.testing.assert_close(
        row_attention(q, k, v), row_attention(q, k, v, torch.zeros_like(bias)), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_a_query_has_the_same_bits_alone_and_however_far_its_keys_are_padded(threads: int) -> None:
    q, k, v, bias = drawn(7, 2, 9, 21, 10, torch.float32)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        whole = row_attention(q, k, v, bias)
        for more in (0, 1, 30):
            parts = [F.pad(k, (0, 0, 0, more)), F.pad(v, (0, 0, 0, more)), F.pad(bias, (0, more), value=-INF)]
            for row in (0, 6):
                some = [part[row : row + 1] for part in parts]
                torch.testing.assert_close(
                    row_attention(q[row : row + 1], *some), whole[row : row + 1], rtol=1e-5, atol=1e-6
                )
                torch.testing.assert_close(
                    row_attention(q[row : row + 1, :, 4:6], *some), whole[row : row + 1, :, 4:6], rtol=1e-5, atol=1e-6
                )
    finally:
        torch.set_num_threads(before)


def test_blocks_answer_each_sequence_alike_in_any_company() -> None:
    lengths = torch.tensor([3, 1, 18, 0, 7, 40])
    offsets = F.pad(lengths.cumsum(0), (1, 0))
    x = torch.randn(int(offsets[-1]), 12)
    block, cross = PackedTransformerBlock(12, 2, ffn_dim=20).eval(), CrossAttention(12, 3).eval()

    def run(rows: list[int]) -> list[torch.Tensor]:
        parts = [x[offsets[r] : offsets[r + 1]] for r in rows]
        own, width = lengths[rows], int(lengths[rows].max())
        at = torch.arange(len(rows)).repeat_interleave(own)
        position = torch.cat([torch.arange(len(part)) for part in parts])
        layout = PackedLayout.of(at, position, 1.0 + position % 3, len(rows), width)
        with torch.no_grad(), alike():
            given = torch.cat(parts)
            made = block(given, layout) if len(rows) == 1 else cross(given, F.pad(own.cumsum(0), (1, 0)), width)
            whole = block(given, layout)
        return [*whole.split(own.tolist()), *made.split(own.tolist())]

    every = run(list(range(6)))
    for row in (0, 1, 2, 4, 5):
        torch.testing.assert_close(run([row])[0], every[row], rtol=1e-5, atol=1e-6)
    pair = run([2, 5])  # of the pairs (0, 3), (1, 4), (2, 5) the last
    torch.testing.assert_close(pair[2], every[8], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(pair[3], every[11], rtol=1e-5, atol=1e-6)
