"""Which token of a node's sequence the blocks can read: synthetic sequences labeled by the class of one token.

Run: python benchmarks/gmn_probe.py [--length 7] [--steps 300] [--depths 1,2] [--rates 0.001,0.005]
         [--readouts last,mean]

Every token has one of four classes, each with its own vector; a network of blocks and a linear head learns the class of
token j only. A row of the tables is one network; column j is the accuracy on new sequences of the network trained on
token j (chance: 25). The rows "untrained" and "taught the last" are linear probes: ridge regressions that predict each
token from the output of the blocks, before training and after training on the last token.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

from common import machine, require_green
from hopstate.layers.ssm import BidirectionalMamba

CLASSES, DIM, BATCH, FRESH = 4, 32, 256, 4096


class Reader(nn.Module):
    """Blocks over sequences of one length, and a representation of a sequence: its last row or the mean."""

    def __init__(self, length: int, depth: int, readout: str) -> None:
        super().__init__()
        self.length, self.readout = length, readout
        self.embed = nn.Linear(CLASSES, DIM)
        self.blocks = nn.ModuleList(BidirectionalMamba(DIM, expand=1.0, state_dim=8) for _ in range(depth))
        self.head = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, CLASSES))

    def encode(self, classes: Tensor) -> Tensor:
        """Return (sequence, DIM) of (sequence, length) classes."""
        x = self.embed(nn.functional.one_hot(classes, CLASSES).float()).flatten(0, 1)
        offsets = torch.arange(len(classes) + 1) * self.length
        for block in self.blocks:
            x = block(x, offsets)
        rows = x.view(-1, self.length, DIM)
        return rows[:, -1] if self.readout == "last" else rows.mean(1)


def taught(length: int, depth: int, readout: str, rate: float, steps: int, token: int) -> Reader:
    """Return a reader trained on the class of a token."""
    torch.manual_seed(token)
    model = Reader(length, depth, readout)
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    for _ in range(steps):
        classes = torch.randint(CLASSES, (BATCH, length))
        loss = nn.functional.cross_entropy(model.head(model.encode(classes)), classes[:, token])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@torch.no_grad()
def accuracy(model: Reader, token: int) -> float:
    """Return the accuracy in percent of a reader on fresh sequences."""
    classes = torch.randint(CLASSES, (FRESH, model.length))
    return 100 * (model.head(model.encode(classes)).argmax(1) == classes[:, token]).float().mean().item()


@torch.no_grad()
def probed(model: Reader) -> list[float]:
    """Return the accuracy in percent of a ridge regression that predicts each token from the blocks' output."""
    classes = torch.randint(CLASSES, (2 * FRESH, model.length))
    rows = nn.functional.pad(model.encode(classes), (0, 1), value=1.0).double()
    known, fresh = rows[:FRESH], rows[FRESH:]
    gram = known.T @ known + 1e-3 * torch.eye(DIM + 1, dtype=torch.float64)
    found = []
    for token in range(model.length):
        wanted = nn.functional.one_hot(classes[:FRESH, token], CLASSES).double()
        guess = (fresh @ torch.linalg.solve(gram, known.T @ wanted)).argmax(1)
        found.append(100 * (guess == classes[FRESH:, token]).double().mean().item())
    return found


def line(name: str, values: list[float]) -> str:
    """Return a row of a table."""
    return f"| {name} | " + " | ".join(f"{value:.0f}" for value in values) + " |"


def main() -> None:
    """Print the machine, a table of trained readers and one of probes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=7)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--depths", default="1,2")
    parser.add_argument("--rates", default="0.001,0.005")
    parser.add_argument("--readouts", default="last,mean")
    options = parser.parse_args()
    require_green("tests/layers/test_ssm.py")
    length, steps = options.length, options.steps
    print(machine())
    heading = "| blocks, readout, rate | " + " | ".join(str(j + 1) for j in range(length)) + " |"
    print(f"\n{heading}\n|{'---|' * (length + 1)}")
    probes = []
    for depth in map(int, options.depths.split(",")):
        for readout in options.readouts.split(","):
            torch.manual_seed(0)
            probes.append(line(f"{depth}, {readout}: untrained", probed(Reader(length, depth, readout))))
            for rate in map(float, options.rates.split(",")):
                models = [taught(length, depth, readout, rate, steps, token) for token in range(length)]
                print(line(f"{depth}, {readout}, {rate:g}", [accuracy(m, j) for j, m in enumerate(models)]), flush=True)
                probes.append(line(f"{depth}, {readout}, {rate:g}: taught the last", probed(models[-1])))
    print("\nlinear probes\n" + "\n".join(probes))


if __name__ == "__main__":
    main()
