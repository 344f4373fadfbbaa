"""CTDG-SSM against algorithm 3 written out: float64, dense inverses and exponentials, no code of the model.

Outputs and every gradient of both layers' memories over a stream with deletions, ties, repeated nodes and self-loops.
"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hopstate.methods.ctdg_ssm.model import CTDGSSM
from hopstate.streaming.active_batch import ActiveBatch
from hopstate.testing.conformance import F32_LAST, F64_DEEP, F64_SOLVED, F64_SUM

D, LAYERS, EDGE, TIME, NODES = 5, 2, 2, 3, 7
POINTS, WEIGHTS = ((v + 1) / 2 if k == 0 else v / 2 for k, v in enumerate(np.polynomial.legendre.leggauss(8)))


def laplacian(edges: list[tuple[int, int]], nodes: list[int]) -> Tensor:
    """I - D^-1/2 A D^-1/2 entry by entry; an isolated node has a row of the identity."""
    place, n = {u: i for i, u in enumerate(nodes)}, len(nodes)
    A = [[0.0] * n for _ in range(n)]
    for u, v in edges:
        A[place[u]][place[v]] += 1
        if u != v:
            A[place[v]][place[u]] += 1
    degree = [sum(row) for row in A]
    L = torch.eye(n, dtype=torch.float64)
    for i in range(n):
        for j in range(n):
            if A[i][j]:
                L[i, j] -= A[i][j] / (degree[i] * degree[j]) ** 0.5
    return L


def power_sum(c: Tensor, L: Tensor) -> Tensor:
    total, power = torch.zeros_like(L), torch.eye(len(L), dtype=torch.float64)
    for value in c:
        total, power = total + value * power, power @ L
    return total


def linear(w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / 2**0.5)) / 2


def softplus(x: Tensor) -> Tensor:
    return torch.log1p(x.exp())


class Twin:
    """Algorithm 3 on the weights of a model, by name; memory as a dictionary from node to (layer, channel)."""

    def __init__(self, weights: dict[str, Tensor], *, order: int, norm: bool = True, residual: bool = True) -> None:
        self.w, self.order, self.norm, self.residual = weights, order, norm, residual
        self.memory: dict[int, Tensor] = {}

    def coefficients(self) -> Tensor:
        one = torch.ones(1, dtype=torch.float64)
        return torch.cat([one, softplus(self.w["filter.raw"])]) if self.order else one

    def step(
        self, events: list[tuple[int, int]], gap: Tensor, attr: Tensor, after: Any, before: Any, others: Any = ()
    ) -> Tensor:
        """Update the memory of all active nodes and of `others`; return the last layer's output in order of node."""
        w = self.w
        nodes = sorted({u for pair in [*events, *after, *before] for u in pair} | set(others))
        P, P_before = (power_sum(self.coefficients(), laplacian(e, nodes)) for e in (after, before))
        inverse = torch.linalg.inv(P)
        G = inverse @ (P - P_before)
        rows: dict[int, list[Tensor]] = {u: [] for u in nodes}
        for i, pair in enumerate(events):
            phi = torch.cos(gap[i] * w["gap_in.omega"])
            x = torch.cat([attr[i], phi])
            for end in pair:
                rows[end].append(linear(w, "encoder.2", gelu(linear(w, "encoder.0", x))))
        nothing = linear(w, "encoder.2", gelu(linear(w, "encoder.0", torch.zeros(EDGE + TIME, dtype=torch.float64))))
        X = torch.stack([sum(found) / len(found) if found else nothing for found in rows.values()])
        memories = [self.memory.get(u, torch.zeros(LAYERS, D, dtype=torch.float64)) for u in nodes]
        made = []
        for layer in range(LAYERS):
            name = f"cells.{layer}"
            Z = X
            if self.norm:
                Z = X / ((X**2).mean(1, keepdim=True) + 1e-6).sqrt() * w[f"{name}.norm.weight"]
            step = softplus(linear(w, f"{name}.step", Z))
            A = -w[f"{name}.log_decay"].exp()
            B = step * linear(w, f"{name}.input", Z)
            H = torch.stack([row[layer] for row in memories])
            new = torch.linalg.matrix_exp(-G) @ (H * (step * A).exp())
            for s, weight in zip(POINTS, WEIGHTS, strict=True):
                new = new + weight * torch.linalg.matrix_exp(-G * s) @ ((inverse @ B) * (s * step * A).exp())
            made.append(new)
            X = X + gelu(new) if self.residual else gelu(new)
        for i, u in enumerate(nodes):
            self.memory[u] = torch.stack([new[i] for new in made])
        return X


# events, edges active after them, edges active before them (context and removed ones)
STORY: list[tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int]]]] = [
    ([(0, 1), (1, 2), (0, 1)], [], []),  # one batch with ties and a repeated pair
    ([(2, 3), (4, 4)], [(0, 1), (1, 2)], []),  # context, and a self-loop
    ([(3, 5)], [(2, 3)], [(1, 2)]),  # an earlier edge is deleted
    ([], [(2, 3)], [(3, 5), (0, 1)]),  # only deletions
    ([(6, 0), (5, 6), (1, 6)], [(3, 5), (4, 4)], [(2, 3)]),
]


def batches(whole: bool = False) -> list[tuple[ActiveBatch, dict[str, Any]]]:
    """Return batches and the inputs of the reference; with `whole`, every node seen so far is active."""
    rng, made = np.random.default_rng(0), []
    seen: set[int] = set()
    for k, (events, context, removed) in enumerate(STORY):
        pairs, around, gone = (np.array(e, np.int64).reshape(-1, 2).T for e in (events, context, removed))
        gap, attr = rng.uniform(0, 9, len(events)), rng.normal(size=(len(events), EDGE))
        gap, attr = gap.astype(np.float32), attr.astype(np.float32)
        others = sorted(seen) if whole else []
        given = {
            "context": around,
            "removed": gone,
            "gap": gap,
            "edge_attr": attr,
            "others": np.array(others, np.int64),
        }
        batch = ActiveBatch.build(*pairs, np.full(len(events), float(k)), **given)
        inputs = {"after": events + context, "before": context + removed, "others": others}
        seen |= {u for pair in events for u in pair}
        exact = {"gap": torch.from_numpy(gap).double(), "attr": torch.from_numpy(attr).double()}
        made.append((batch, {"events": events, **inputs, **exact}))
    return made


@pytest.mark.parametrize(
    ("order", "options", "sparse"),
    [
        (0, {}, False),
        (1, {}, True),
        (2, {"filter_init": 1.0}, False),
        (1, {"norm": False}, False),
        (2, {"residual": False}, True),
        (0, {"update_all": True}, True),
        (1, {"update_all": True}, False),
    ],
    ids=str,
)
def test_memory_output_and_every_gradient_equal_algorithm_3(order: int, options: dict[str, Any], sparse: bool) -> None:
    torch.manual_seed(order)
    config = CTDGSSM.Config(
        dim=D,
        num_layers=LAYERS,
        order=order,
        time_dim=TIME,
        step_bias=-0.5,
        dense_limit=0 if sparse else 256,
        **options,
    )
    model = CTDGSSM(config, edge_dim=EDGE).double()
    weights = {
        k: v.detach().clone().requires_grad_(v.requires_grad) for k, v in model.state_dict(keep_vars=True).items()
    }
    flags = {k: v for k, v in options.items() if k in ("norm", "residual")}
    twin, state = Twin(weights, order=order, **flags), model.initial_state(NODES)
    readings: list[list[Tensor]] = [[], []]
    for batch, inputs in batches("update_all" in options):
        state = model.update(state, batch)
        output = twin.step(**inputs)
        torch.testing.assert_close(state.output[state.place(batch.nodes)], output, rtol=F64_SOLVED, atol=F64_SUM)
        weight = torch.from_numpy(np.random.default_rng(len(output)).normal(size=output.shape))
        readings[0].append((state.output[state.place(batch.nodes)] * weight).sum())
        readings[1].append((output * weight).sum())
    for u, memory in twin.memory.items():
        torch.testing.assert_close(state.memory[:, u], memory, rtol=F64_SOLVED, atol=F64_SUM)
    sum(readings[0]).backward()
    sum(readings[1]).backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, weights[name].grad, rtol=F32_LAST, atol=F64_DEEP, msg=name)
    moved = {name for name, p in model.named_parameters() if p.grad is not None}
    assert {name for name in weights if weights[name].grad is not None} == moved
    assert any(name.startswith("cells.0.step") for name in moved)
