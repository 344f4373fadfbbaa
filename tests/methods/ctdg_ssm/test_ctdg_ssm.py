"""CTDG-SSM on small streams: the layer rule, both matrix paths, saved memory, and errors by name."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hopstate.errors import CheckpointError, ConfigError, DataError, HopstateError, ShapeError, TimeOrderError
from hopstate.methods.ctdg_ssm.model import CTDGSSM
from hopstate.ops.filters.laplacian import dense_laplacian
from hopstate.ops.filters.transition import DenseTransition
from hopstate.streaming.active_batch import ActiveBatch
from hopstate.streaming.node_state import NodeState
from hopstate.testing.conformance import F32_TIGHT, F64, F64_SOLVED, F64_SUM, F64_TIGHT

D = 6


def model(seed: int = 0, **options: Any) -> CTDGSSM:
    torch.manual_seed(seed)
    data = {k: options.pop(k) for k in ("edge_dim", "num_nodes", "decoder", "num_outputs") if k in options}
    return CTDGSSM(CTDGSSM.Config(**{"dim": D, "time_dim": 4, **options}), **{"edge_dim": 2, **data}).double()


def stream(batches: int = 4, size: int = 5, nodes: int = 12, seed: int = 0) -> list[ActiveBatch]:
    """Batches of random events, each with the edges of earlier batches as context."""
    rng = np.random.default_rng(seed)
    found, past = [], np.empty((2, 0), np.int64)
    for k in range(batches):
        new = rng.integers(0, nodes, (2, size))
        found.append(
            ActiveBatch.build(
                *new,
                k + np.sort(rng.random(size)),
                context=past,
                gap=rng.random(size),
                edge_attr=rng.standard_normal((size, 2)),
            )
        )
        past = np.concatenate([past, new], 1)[:, -15:]
    return found


def same(a: NodeState, b: NodeState) -> bool:
    return a.clock == b.clock and all(torch.equal(t, b.tensors()[k]) for k, t in a.tensors().items())


def close(a: NodeState, b: NodeState, atol: float) -> None:
    for name, tensor in a.tensors().items():
        torch.testing.assert_close(tensor, b.tensors()[name], rtol=atol, atol=atol)


def run(m: CTDGSSM, batches: list[ActiveBatch], state: NodeState | None = None) -> NodeState:
    state = m.initial_state() if state is None else state
    for batch in batches:
        state = m.update(state, batch)
    return state


def test_layers_follow_algorithm_3() -> None:
    """X <- X + GELU(H) layer by layer, and the memory of inactive nodes is unchanged."""
    m, (first, second) = model(order=2), stream(2)
    state = m.update(m.initial_state(30), first)
    after = m.update(state, second)
    x = m._encode(second, m.static(second.nodes))[None]
    step = m._transition(second)
    for layer, cell in enumerate(m.cells):
        H = cell.update(state.memory[layer, second.nodes][None], x, step)
        assert torch.allclose(after.memory[layer, second.nodes], H[0], atol=F64_TIGHT)
        x = x + F.gelu(H)
    assert torch.allclose(after.output[second.nodes], x[0], atol=F64_TIGHT)
    idle = np.setdiff1d(np.arange(30), second.nodes.numpy())
    assert torch.equal(after.memory[:, idle], state.memory[:, idle])


@pytest.mark.parametrize("order", [0, 1, 3])
def test_sparse_path_equals_dense_in_value_and_every_gradient(order: int) -> None:
    results = []
    for limit in (0, 1000):
        m = model(order=order, dense_limit=limit)
        state = run(m, stream())
        loss = m.link_logits(state, torch.tensor([1, 2]), torch.tensor([3, 4]), torch.zeros(2, 1)).sum()
        parameters = {k: p for k, p in m.named_parameters() if p.requires_grad}
        grads = torch.autograd.grad(loss, parameters.values())
        results.append([state.memory, state.output, *grads])
    for sparse, dense in zip(*results, strict=True):
        assert torch.allclose(sparse, dense, atol=F64_SUM, rtol=F64_SOLVED)


def test_every_parameter_receives_a_gradient() -> None:
    extra: dict[str, Any] = {"hidden": 5, "pair_dim": 3, "embedding_norm": True, "node_time_deltas": True}
    m = model(static="learnable", static_dim=3, num_nodes=12, order=2, **extra)
    state = run(m, stream())
    m.link_logits(state, torch.tensor([1]), torch.tensor([3]), torch.rand(1, 3)).sum().backward()
    for name, parameter in m.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


def test_permuted_node_ids_permute_the_states() -> None:
    """Theorem 6.2 for the whole model, over a stream."""
    m, batches = model(order=2), stream()
    state = run(m, batches, m.initial_state(12))
    place = torch.randperm(12)
    moved = [ActiveBatch(**{**vars(b), "nodes": place[b.nodes]}) for b in batches]
    permuted = run(m, moved, m.initial_state(12))
    assert torch.allclose(permuted.memory[:, place], state.memory, atol=F64)
    assert torch.allclose(permuted.output[place], state.output, atol=F64)


def test_a_node_repeated_a_hundred_times_is_the_mean_of_its_events() -> None:
    m = model()
    rng = np.random.default_rng(0)
    others = rng.integers(1, 4, 100)
    attr = rng.standard_normal((100, 2))
    zeros = np.zeros(100)
    batch = ActiveBatch.build(np.zeros(100, int), others, zeros, gap=zeros, edge_attr=attr)
    inputs = torch.cat([torch.from_numpy(attr).float().double(), m.gap_in(torch.zeros(100))], 1)
    assert torch.allclose(m._encode(batch, m.static(batch.nodes))[0], m.encoder(inputs).mean(0), atol=F64)
    state = m.update(m.initial_state(), batch)
    assert torch.isfinite(state.memory).all()
    # a repeated edge has its count as weight: three nodes with a events each have -sqrt(a / 100) in the Laplacian
    counts = np.bincount(others, minlength=4)[1:]
    L = dense_laplacian(batch.after, torch.ones(100, dtype=torch.float64), 4)[0]
    assert L[0, 1:].tolist() == pytest.approx((-np.sqrt(counts / 100)).tolist())


def test_new_nodes_in_mid_stream_equal_room_from_the_start() -> None:
    m, batches = model(static="random", static_dim=3), stream(nodes=6)
    late = ActiveBatch.build(np.array([40]), np.array([2]), np.array([9.0]), gap=np.zeros(1), edge_attr=np.ones((1, 2)))
    grown, roomy = run(m, [*batches, late]), run(m, [*batches, late], m.initial_state(41))
    assert grown.num_nodes == 41
    close(grown, roomy, F64)


@pytest.mark.parametrize("limit", [0, 1000])
def test_updates_in_place_are_bit_identical(limit: int) -> None:
    m, batches = model(dense_limit=limit).float(), stream(6)
    with torch.no_grad():
        straight = run(m, batches)
        half = run(m, batches[:3])
        in_place = half.snapshot()
        for batch in batches[3:]:
            in_place = m.update(in_place, batch, in_place=True)
        assert same(straight, in_place)


def test_memory_stays_in_full_precision_under_autocast() -> None:
    m, batches = model(order=2).float(), stream()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = run(m, batches)
        scores = m.link_logits(mixed, torch.tensor([0]), torch.tensor([2]), torch.zeros(1, 1))
    close(mixed, run(m, batches), F32_TIGHT)
    assert torch.isfinite(scores).all()


def test_scores_before_a_batch_do_not_depend_on_it() -> None:
    """Changing the events at or after a time changes no earlier score."""
    m, batches = model(), stream(4)
    other = [*batches[:2], *stream(4, seed=5)[2:]]
    pair = (torch.tensor([0, 1]), torch.tensor([2, 3]), torch.zeros(2, 1))
    scores = []
    for events in (batches, other):
        state, found = m.initial_state(12), []
        for batch in events:
            found.append(m.link_logits(state, *pair))
            state = m.update(state, batch)
        scores.append(found)
    for a, b in zip(scores[0][:3], scores[1][:3], strict=True):
        torch.testing.assert_close(a, b, rtol=F64, atol=F64)
    assert not torch.allclose(scores[0][3], scores[1][3])


def test_deleting_an_added_edge_restores_the_memory() -> None:
    """An edge added and deleted without input in almost no time: the state returns up to second order in alpha."""
    pair, none = np.array([[0], [1]]), np.empty(0, np.int64)
    errors = []
    for alpha in (1e-2, 1e-3):
        m = model(order=1, filter_init=alpha, step_bias=-40.0, edge_dim=0, static="random", time_dim=0)
        start = m.initial_state(2)
        start.memory.normal_(generator=torch.Generator().manual_seed(0))
        removed = ActiveBatch.build(none, none, none, removed=pair)
        added = ActiveBatch(**{**vars(removed), "after": removed.before, "before": removed.after})
        with torch.no_grad():
            there = m.update(start, added)
            back = m.update(there, removed)
        assert not torch.allclose(there.memory, start.memory, atol=alpha / 10)
        errors.append(float((back.memory - start.memory).norm()))
    assert errors[1] < 1.2e-2 * errors[0]


@pytest.mark.parametrize("kind", ["none", "onehot", "random", "learnable"])
def test_static_embeddings_reach_the_score(kind: Any) -> None:
    sized = {"static_dim": 3} if kind in ("random", "learnable") else {}
    m = model(static=kind, num_nodes=12, **sized)
    state = run(m, stream(2))
    assert m.link_logits(state, torch.tensor([0, 5]), torch.tensor([1, 2]), torch.zeros(2, 1)).shape == (2,)
    width = {"none": 0, "onehot": 12}.get(kind, 3)
    assert m.represent(state, torch.tensor([3])).shape == (1, D + width)


def test_a_random_embedding_does_not_depend_on_when_a_node_appears() -> None:
    one, two = model(static="random", static_dim=7), model(static="random", static_dim=7)
    early = one.static(torch.tensor([3]))
    one.static(torch.tensor([5000]))
    assert torch.equal(one.static(torch.tensor([3])), early)
    assert torch.equal(two.static(torch.tensor([5000, 3]))[1:], early)


def test_noise_perturbs_only_the_laplacian_after_the_batch() -> None:
    """The paper's E.3 replaces L_B[k] and keeps L_B[k-1]."""
    m, batch = model(order=1, laplacian_noise=0.3), stream(2)[1]
    alpha, n = float(m.filter()[1]), len(batch.nodes)
    transition = m._transition(batch)
    assert isinstance(transition, DenseTransition)
    after = (transition.factor @ transition.factor.mT)[0]
    before = after - after @ transition.G[0]  # P_before = P - P G
    eye = torch.eye(n, dtype=torch.float64)
    expected = [dense_laplacian(p, torch.ones(p.shape[1]).double(), n)[0] for p in (batch.after, batch.before)]
    torch.testing.assert_close(before, eye + alpha * expected[1], rtol=F64_SOLVED, atol=F64_SOLVED)
    moved = torch.linalg.matrix_norm((after - eye) / alpha - expected[0], 2)
    assert 0.05 < float(moved) < 0.3 + F64_SOLVED  # less than epsilon because of clipping to [0, 2]


def test_random_embeddings_follow_the_seed_and_stay_with_the_weights() -> None:
    config, nodes = CTDGSSM.Config(dim=D, static="random", static_dim=5), torch.tensor([0, 7])
    one, two = CTDGSSM(config, seed=1), CTDGSSM(config, seed=2)
    before = two.static(nodes)
    assert not torch.equal(one.static(nodes), before)
    one.load_state_dict(two.state_dict())
    assert torch.equal(one.static(nodes), before)


def test_decoders_return_the_expected_shapes() -> None:
    nodes, gap = torch.tensor([0, 3, 5]), torch.zeros(3, 1)
    m = model(decoder="node", num_outputs=4)
    assert m.node_logits(run(m, stream(2)), nodes, gap).shape == (3, 4)
    m = model(decoder="sequence")
    assert m.sequence_logits(run(m, stream(2)), nodes).shape == (3, 1)
    m = model()
    assert m.link_logits(m.initial_state(), nodes, nodes, gap).shape == (3,)  # before any event


def test_bad_input_is_named_and_leaves_the_state_unchanged() -> None:
    m, batches = model(static="learnable", num_nodes=12, static_dim=3), stream(4)
    state = run(m, batches[:2])
    kept = state.snapshot()
    fields = vars(batches[2])
    far = ActiveBatch(**{**fields, "nodes": batches[2].nodes + 100})
    wide = ActiveBatch(**{**fields, "edge_attr": torch.ones(5, 3)})
    poisoned = ActiveBatch(**{**fields, "edge_attr": torch.full((5, 2), float("nan"))})
    cases: list[tuple[type[HopstateError], str | None, NodeState, ActiveBatch]] = [
        (TimeOrderError, None, state, batches[0]),
        (CheckpointError, None, model(dim=7).initial_state(12), batches[2]),
        (CheckpointError, None, model(num_layers=1).initial_state(12), batches[2]),
        (DataError, "12", state, far),
        (ShapeError, "edge_attr", state, wide),
        (ShapeError, "gap", state, ActiveBatch(**{**fields, "gap": None})),
        (HopstateError, None, state, poisoned),
    ]
    for error, name, given, batch in cases:
        with pytest.raises(error, match=name), torch.no_grad():
            m.update(given, batch, in_place=True)
        assert same(state, kept)


def test_blocks_out_of_order_are_named_by_node() -> None:
    m = model(edge_dim=0, time_dim=0, static="random")

    def step(t: list[float]) -> ActiveBatch:
        rows = torch.tensor([0, 2]), torch.tensor([1, 3])
        edge = torch.stack(rows)
        time = torch.tensor(t, dtype=torch.float64)
        return ActiveBatch(
            nodes=torch.arange(4), source=rows[0], target=rows[1], time=time, after=edge, before=edge[:, :0], blocks=2
        )

    state = m.update(m.initial_state(), step([5.0, 1.0]))
    state = m.update(state, step([6.0, 2.0]))  # each stream has its own clock
    with pytest.raises(TimeOrderError, match="node 2"):
        m.update(state, step([7.0, 1.5]))


@pytest.mark.parametrize(
    "options",
    [
        {"dim": 0},
        {"order": -1},
        {"filter_init": -1.0},
        {"static": "onehot"},
        {"static": "magic"},
        {"max_norm": 0.0},
        {"edge_dim": 0, "time_dim": 0},
        {"static": "onehot", "num_nodes": 10**6},
    ],
)
def test_invalid_ctdg_ssm_settings_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        model(**options)
