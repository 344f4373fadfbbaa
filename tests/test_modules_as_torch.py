"""Every public model behaves like a PyTorch module: copies, files, precisions, compilers, evaluation."""

import copy
import io
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent / "methods" / "baselines"))
from history_cases import EDGE_DIM, NODE_DIM, make_queries, make_store, make_stream

import hopstate
from hopstate.layers.message import Adjacency
from hopstate.methods.baselines.dygformer import DyGFormer
from hopstate.methods.baselines.graphmixer import GraphMixer, RecentLinkTokenizer
from hopstate.methods.dyg_mamba.model import DyGMamba, DyGMambaNodes, TimeSpanConfig
from hopstate.methods.gmn.graph_method import GIN
from hopstate.methods.message_passing.backbones import BACKBONES
from hopstate.methods.message_passing.model import Backbone
from hopstate.streaming.active_batch import ActiveBatch
from hopstate.testing.conformance import assert_close_rmse
from hopstate.tokens.history import HistoryConfig, HistoryTokenizer
from hopstate.training.devices import Double

N, WIDTH = 14, 5
Made = tuple[nn.Module, tuple[Any, ...]]


class Streamed(nn.Module):
    """A memory model as a module: its memory after batches of events, then logits of pairs or of nodes."""

    def __init__(self, model: hopstate.CTDGSSM, decoder: str) -> None:
        super().__init__()
        self.model, self.decoder = model, decoder

    def forward(self, batches: tuple[ActiveBatch, ...], gap: Tensor) -> Tensor:
        state, pairs = self.model.initial_state(), torch.arange(6).view(2, 3)
        for batch in batches:
            state = self.model.update(state, batch)
        if self.decoder == "link":
            return self.model.link_logits(state, *pairs, gap)
        return self.model.node_logits(state, pairs[0], gap)


def graph() -> hopstate.Graph:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, WIDTH)).astype(np.float32)
    made = hopstate.Graph.from_edges(rng.integers(0, N, (30, 2)), N, undirected=True, x=x)
    return made.with_(edge_attr=rng.normal(size=(made.num_edges, 3)).astype(np.float32))


def backbone(kind: str, edge_dim: int = 0, **options: Any) -> Made:
    config = Backbone.Config(**{"dim": 8, "num_layers": 2, "heads": 2, "dropout": 0.0, **options})
    whole = graph()
    if BACKBONES[kind].edges == "relations":
        edge_dim, relation = 1, np.arange(whole.num_edges, dtype=np.float32)[:, None] % 3
        whole = whole.with_(edge_attr=relation)
    dims = {"in_dim": WIDTH, "num_classes": 3, "edge_dim": edge_dim, "num_relations": 3}
    model = Backbone(config, kind=kind, degrees=torch.from_numpy(np.diff(whole.indptr)), **dims)
    over = Adjacency.of(whole.indptr, whole.indices, edge_attr=whole.edge_attr if edge_dim else None)
    return model, (torch.from_numpy(np.array(whole.x)), over)


def gmn(level: str = "node", edge_dim: int = 3, tokens: int = 5, **options: Any) -> Made:
    small = {"dim": 8, "expand": 1.0, "state_dim": 4, "mpnn_layers": 2, "dropout": 0.0}
    config = hopstate.GMN.Config(**{**small, **options})
    whole = graph() if edge_dim else graph().with_(edge_attr=None)
    inputs = hopstate.gmn_inputs(whole, config, max_length=tokens // 2, repeats=2, walks=2)
    model = hopstate.GMN(config, in_dim=WIDTH, out_dim=3, edge_dim=edge_dim, tokens=tokens, level=level)
    return model, (replace(inputs, pairs=torch.tensor([[0, 1], [5, 3]])),)


def gin() -> Made:
    config = GIN.Config(dim=8, num_layers=2, dropout=0.0, pooling="mean")
    return GIN(config, in_dim=WIDTH, out_dim=3), (hopstate.gmn_inputs(graph()),)


def nagphormer() -> Made:
    config = hopstate.NAGphormer.Config(dim=8, num_heads=2, dropout=0.0, attention_dropout=0.0)
    model = hopstate.NAGphormer(config, in_dim=WIDTH, num_classes=3, num_hops=2)
    return model, (torch.randn(N, 3, WIDTH, generator=torch.Generator().manual_seed(0)),)


def history(make: Callable[..., nn.Module], config: Any) -> Made:
    stream = make_stream()
    tokenizer = HistoryTokenizer(make_store(stream), stream, HistoryConfig(max_length=8))
    u, v, t = make_queries(stream)
    model = make(config, node_dim=NODE_DIM, edge_dim=EDGE_DIM)
    return model, (tokenizer.nodes(u, t) if isinstance(model, DyGMambaNodes) else tokenizer.pairs(u, v, t),)


def dyg_mamba(make: type[nn.Module] = DyGMamba, step: Any = "span", **options: Any) -> Made:
    block = TimeSpanConfig(state_dim=3, dropout=0.0, step=step)
    return history(make, DyGMamba.Config(channel_dim=4, time_dim=6, out_dim=5, block=block, **options))


def graphmixer() -> Made:
    config = GraphMixer.Config(num_links=6, dim=8, time_dim=5, out_dim=4, dropout=0.0)
    stream = make_stream()
    links = RecentLinkTokenizer(make_store(stream), stream, num_links=6).pairs(*make_queries(stream))
    return GraphMixer(config, node_dim=NODE_DIM, edge_dim=EDGE_DIM), (links,)


def ctdg_ssm(decoder: str = "link", **options: Any) -> Made:
    rng = np.random.default_rng(0)
    batches, past = [], np.empty((2, 0), np.int64)
    for k in range(3):
        new = rng.integers(0, 12, (2, 6))
        features = {"gap": rng.random(6), "edge_attr": rng.standard_normal((6, 2)).astype(np.float32)}
        batches.append(ActiveBatch.build(*new, k + np.sort(rng.random(6)), context=past, **features))
        past = np.concatenate([past, new], 1)
    config = hopstate.CTDGSSM.Config(**{"dim": 6, "time_dim": 4, **options})
    outputs = 1 if decoder == "link" else 3
    model = hopstate.CTDGSSM(config, edge_dim=2, decoder=decoder, num_outputs=outputs, num_nodes=12)
    return Streamed(model, decoder), (tuple(batches), torch.rand(3, 1, generator=torch.Generator().manual_seed(0)))


def topped() -> Made:
    from torch_geometric.nn import GCN

    whole = graph().with_(edge_attr=None)
    model, nodes = hopstate.top(GCN(WIDTH, 8, 2, 3), whole), np.arange(6)
    return model, (torch.from_numpy(whole.x[nodes]), model.batch(nodes))


CASES: dict[str, Callable[[], Made]] = {
    **{kind: partial(backbone, kind) for kind in BACKBONES},
    **{f"{kind}-edges": partial(backbone, kind, 3) for kind in ("gin", "gat", "pna")},
    "gcn-conv-cat": partial(backbone, "gcn", block="conv", norm="batch", jumping_knowledge="cat"),
    "gmn": gmn,
    "gmn-no-edges": partial(gmn, edge_dim=0),
    "gmn-edge": partial(gmn, "edge"),
    "gmn-graph": partial(gmn, "graph", graph_pooling="all", input_readout=True),
    "gmn-walks": partial(gmn, variant="gmn-"),
    "gmn-pna": partial(gmn, mpnn="pna", local="gine"),
    "gmn-gcn": partial(gmn, mpnn="gcn", local="sage"),
    "gps-mamba": partial(gmn, variant="gps-mamba", tokens=1),
    "gin-graphs": gin,
    "nagphormer": nagphormer,
    "dyg-mamba": dyg_mamba,
    "dyg-mamba-cross": partial(dyg_mamba, encoders="independent", cross_attention=2, step="both"),
    "dyg-mamba-nodes": partial(dyg_mamba, DyGMambaNodes),
    "dygformer": partial(history, DyGFormer, DyGFormer.Config(max_length=8, channel_dim=4, time_dim=6, dropout=0.0)),
    "graphmixer": graphmixer,
    "ctdg-ssm": ctdg_ssm,
    "ctdg-ssm-sparse": partial(ctdg_ssm, static="learnable", static_dim=3, dense_limit=0, order=2),
    "ctdg-ssm-nodes": partial(ctdg_ssm, "node", static="random", static_dim=3),
    "top": topped,
}
every = pytest.mark.parametrize("name", CASES)
# torch.compile captures one graph only without sparse matrices and data-dependent control flow
IN_ONE_GRAPH = ("gat", "pna", "gmn", "gmn-walks", "gps-mamba", "nagphormer", "dyg-mamba", "dygformer", "graphmixer")
IN_PARTS = ("gcn", "gcnii", "gin-graphs", "ctdg-ssm", "top")


def made(name: str, seed: int = 0) -> Made:
    """Return a model in evaluation mode, with normalisation statistics of one batch, and inputs."""
    torch.manual_seed(seed)
    model, inputs = CASES[name]()
    model.train()(*inputs)
    return model.eval(), inputs


@torch.no_grad()
def evaluate_model(model: nn.Module, inputs: tuple[Any, ...]) -> Tensor:
    return model(*inputs)


def gradients(model: nn.Module, output: Tensor) -> Tensor:
    """Return the gradients of a weighted sum of outputs, concatenated over all parameters."""
    model.zero_grad()
    (output.float() * torch.linspace(-1, 1, output.numel()).view(output.shape)).sum().backward()
    found = [p.grad for p in model.parameters() if p.requires_grad]
    assert all(g is not None for g in found)
    return torch.cat([g.flatten().float() for g in found])


@every
def test_copies_and_pickles_give_the_same_output(name: str) -> None:
    model, inputs = made(name)
    before = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    expected = evaluate_model(model, inputs)
    for other in (*before, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not other.training
        assert torch.equal(evaluate_model(other, inputs), expected)
    for others in (copy.deepcopy(inputs), pickle.loads(pickle.dumps(inputs))):
        assert torch.equal(evaluate_model(model, others), expected)


@every
def test_a_state_dict_loads_into_another_model_and_a_call_does_not_change_it(name: str) -> None:
    model, inputs = made(name)
    torch.save(model.state_dict(), file := io.BytesIO())
    expected = evaluate_model(model, inputs)
    file.seek(0)
    saved, (other, _) = torch.load(file, weights_only=True), made(name, seed=1)
    assert not torch.equal(evaluate_model(other, inputs), expected)
    other.load_state_dict(saved)
    assert torch.equal(evaluate_model(other, inputs), expected)
    for now in (model.state_dict(), other.state_dict()):
        assert saved.keys() == now.keys()
        assert all(torch.equal(saved[key], value) for key, value in now.items())


@every
def test_precisions_and_devices(name: str) -> None:
    model, inputs = made(name)
    expected, wide = evaluate_model(model, inputs), copy.deepcopy(model).to(torch.float64)
    found = evaluate_model(wide, Double().convert_input(inputs))
    assert found.dtype == torch.float64
    assert_close_rmse(expected, found, dtype=torch.float32, factor=10)  # a whole network
    assert_close_rmse(evaluate_model(wide.float().to("cpu"), inputs), expected)
    assert {p.device.type for p in wide.to("meta").parameters()} == {"meta"}


@every
def test_training_within_autocast_is_near_full_precision(name: str) -> None:
    model, inputs = made(name)
    model.train()
    expected = model(*inputs)
    by_weights = gradients(model, expected)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(*inputs)
    # rounding in bfloat16 changes which values pass a ReLU or a maximum
    assert_close_rmse(found, expected, dtype=torch.bfloat16, factor=3)
    assert_close_rmse(gradients(model, found), by_weights, dtype=torch.bfloat16, factor=15)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close_rmse(evaluate_model(model.eval(), inputs), evaluate_model(model, inputs))


@pytest.mark.parametrize("name", IN_ONE_GRAPH + IN_PARTS)
def test_compiled_equals_eager(name: str) -> None:
    model, inputs = made(name)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=name in IN_ONE_GRAPH)
    assert_close_rmse(evaluate_model(compiled, inputs), evaluate_model(model, inputs))


def test_compiled_training_equals_eager() -> None:
    model, inputs = made("dyg-mamba")
    torch.compiler.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert_close_rmse(gradients(model, compiled(*inputs)), gradients(model, model(*inputs)))
