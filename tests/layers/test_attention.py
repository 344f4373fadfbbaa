import pytest
import torch

from hopstate.errors import ConfigError
from hopstate.layers.attention import SelfAttention, TransformerBlock, dot_product_attention
from hopstate.testing.conformance import assert_close_rmse


def attention_written_out(layer: SelfAttention, x: torch.Tensor) -> torch.Tensor:
    """A loop over heads, from the definition."""
    d = x.shape[-1]
    wq, wk, wv = layer.qkv.weight.split(d)
    bq, bk, bv = layer.qkv.bias.split(d)
    size, heads = d // layer.num_heads, []
    for h in range(layer.num_heads):
        part = slice(h * size, (h + 1) * size)
        heads.append(
            dot_product_attention(x @ wq[part].T + bq[part], x @ wk[part].T + bk[part], x @ wv[part].T + bv[part])
        )
    return torch.cat(heads, -1) @ layer.out.weight.T + layer.out.bias


@pytest.mark.parametrize("tokens", [1, 2, 5, 11])
@pytest.mark.parametrize("heads", [1, 3])
def test_equals_definition_with_gradients(tokens: int, heads: int) -> None:
    layer = SelfAttention(12, heads).double()
    x = torch.randn(3, tokens, 12, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, tokens, 12, dtype=torch.float64)
    inputs = [x, *layer.parameters()]
    actual, expected = layer(x), attention_written_out(layer, x)
    assert_close_rmse(actual, expected)
    for a, e in zip(
        torch.autograd.grad((actual * weight).sum(), inputs), torch.autograd.grad((expected * weight).sum(), inputs)
    ):
        # one token: softmax of one score, so queries and keys have gradient 0 up to rounding
        assert_close_rmse(a + 1, e + 1)


def test_block_is_pre_norm_and_residual() -> None:
    block = TransformerBlock(8, 2, ffn_dim=16).double()
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    middle = x + attention_written_out(block.attention, block.attention_norm(x))
    hidden = torch.nn.functional.gelu(block.ffn_norm(middle) @ block.ffn[0].weight.T + block.ffn[0].bias)
    assert_close_rmse(block(x), middle + hidden @ block.ffn[2].weight.T + block.ffn[2].bias)


def test_dropout_only_in_training() -> None:
    block = TransformerBlock(8, 2, ffn_dim=16, dropout=0.5, attention_dropout=0.5)
    x = torch.randn(2, 3, 8)
    assert not torch.equal(block(x), block(x))
    block.eval()
    assert torch.equal(block(x), block(x))


def test_the_width_must_be_divisible_by_the_heads() -> None:
    with pytest.raises(ConfigError, match="num_heads"):
        SelfAttention(8, 3)
