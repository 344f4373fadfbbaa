"""The MLP-Mixer block."""

import torch
import torch.nn.functional as F

from hopstate.methods.baselines.graphmixer import MixerBlock


def test_block_equals_its_formula():
    block = MixerBlock(4, 6).double()
    x = torch.randn(3, 4, 6, dtype=torch.float64)

    def perceptron(mlp, x):
        return F.gelu(x @ mlp[0].weight.T + mlp[0].bias) @ mlp[3].weight.T + mlp[3].bias

    mixed = x.clone()
    for s in range(3):
        columns = F.layer_norm(x[s].T, (4,))  # a fresh norm has weight 1 and bias 0
        mixed[s] = x[s] + perceptron(block.token_mlp, columns).T
    expected = mixed + perceptron(block.channel_mlp, F.layer_norm(mixed, (6,)))
    torch.testing.assert_close(block(x), expected)


def test_widths_and_parameters():
    block = MixerBlock(20, 172)
    widths = [m.out_features for m in block.modules() if isinstance(m, torch.nn.Linear)]
    assert widths == [10, 20, 688, 172]
    assert sum(p.numel() for p in block.parameters()) == 40 + 430 + 344 + 237_532


def test_sequences_are_independent_and_dropout_is_off_in_evaluation():
    block = MixerBlock(4, 6, dropout=0.5)
    x = torch.randn(3, 4, 6)
    assert not torch.equal(block(x), block(x))
    block.eval()
    torch.testing.assert_close(block(x)[1:2], block(x[1:2]))
