"""GraphMixer: packed against padded, its parameters, and the conformance suite."""

import numpy as np
import pytest
import torch
from history_cases import EDGE_DIM, NODE_DIM, Column, make_queries, make_store, make_stream, take_sequences

from hopstate.errors import ConfigError, ShapeError
from hopstate.methods.baselines.graphmixer import GraphMixer, RecentLinks, RecentLinkTokenizer
from hopstate.testing.conformance import F64, F64_DEEP, F64_SUM, ModelCase, check_model

SMALL = {"num_links": 6, "dim": 8, "time_dim": 5, "out_dim": 4, "dropout": 0.0}


def _links(*, features: bool = True, num_links: int = 6) -> RecentLinks:
    stream = make_stream(features=features)
    return RecentLinkTokenizer(make_store(stream), stream, num_links=num_links).pairs(*make_queries(stream))


def _model(**options: object) -> GraphMixer:
    model = GraphMixer(GraphMixer.Config(**{**SMALL, **options}), node_dim=NODE_DIM, edge_dim=EDGE_DIM)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def _naive(model: GraphMixer, links: RecentLinks) -> torch.Tensor:
    """A loop over nodes with sequences padded at the front and all features multiplied out."""
    tokens, size, embeddings = links.tokens, model.config.num_links, []
    for s in range(tokens.num_sequences):
        rows = slice(*tokens.offsets[s : s + 2].tolist())
        width = rows.stop - rows.start
        block = model.project.weight.new_zeros(size, model.project.in_features)
        if tokens.edge_attr is not None:
            block[size - width :, :EDGE_DIM] = tokens.edge_attr[rows]
        block[size - width :, EDGE_DIM:] = torch.cos(tokens.gaps[rows, None].double() * model.time.omega)
        mixed = model.blocks(model.project(block)[None])[0].mean(0)
        own = mixed.new_zeros(NODE_DIM) if links.x is None else links.x[s].double()
        embeddings.append(model.output(torch.cat([mixed, own])))
    u, v = torch.stack(embeddings)[links.ends]
    return model.head(u, v)


@pytest.mark.parametrize("features", [True, False])
def test_packed_equals_padded_in_outputs_and_every_gradient(features):
    model, links = _model().double(), _links(features=features)
    results = []
    for form in (model, lambda links: _naive(model, links)):
        model.zero_grad()
        logits = form(links)
        (torch.linspace(-1, 1, len(logits), dtype=logits.dtype) * logits).sum().backward()
        results.append((logits, {n: p.grad.clone() for n, p in model.named_parameters()}))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=F64_SUM, atol=F64)
    for name, gradient in results[0][1].items():
        torch.testing.assert_close(gradient, results[1][1][name], rtol=F64_DEEP, atol=F64_SUM, msg=name)


def test_published_size():
    """DyGLib's GraphMixer on UCI: 172 features per node and event, 20 links, 100 fixed frequencies, two blocks."""
    model = GraphMixer(GraphMixer.Config(), node_dim=172, edge_dim=172)
    block = 2 * 20 + (20 * 10 + 10) + (10 * 20 + 20) + 2 * 172 + (172 * 688 + 688) + (688 * 172 + 172)
    expected = (272 * 172 + 172) + 2 * block + (344 * 172 + 172) + (344 * 172 + 172) + (172 + 1)
    assert sum(p.numel() for p in model.parameters()) == expected == 642_501


def _take(inputs: tuple, rows: torch.Tensor) -> tuple:
    """Pairs at rows, with only their own nodes."""
    links = inputs[0]
    keep, ends = links.ends[:, rows].flatten().unique(return_inverse=True)
    x = None if links.x is None else links.x[keep]
    return (RecentLinks(take_sequences(links.tokens, keep), ends.view(2, -1), x),)


def test_conformance():
    config = GraphMixer.Config(**{**SMALL, "dropout": 0.2})
    check_model(
        ModelCase(
            make=lambda: Column(GraphMixer(config, node_dim=NODE_DIM, edge_dim=EDGE_DIM)),
            inputs=(_links(),),
            permute=_take,
            take=_take,
        )
    )


def test_no_pairs_and_no_history():
    stream, none = make_stream(), np.zeros(0, np.int64)
    tokenizer = RecentLinkTokenizer(make_store(stream), stream, num_links=6)
    assert _model()(tokenizer.pairs(none, none, none.astype(float))).shape == (0,)
    isolated = tokenizer.pairs(np.array([8]), np.array([8]), np.array([20.0]))
    assert isolated.tokens.longest == 0
    assert torch.isfinite(_model()(isolated)).all()


def test_wrong_inputs_are_named():
    with pytest.raises(ShapeError, match="7"):
        _model()(_links(num_links=7))
    with pytest.raises(ShapeError, match="edge"):
        GraphMixer(GraphMixer.Config(**SMALL), node_dim=NODE_DIM)(_links())


@pytest.mark.parametrize("wrong", [{"num_links": 0}, {"num_links": 1}, {"channel_ratio": 0.0}, {"dropout": -0.1}])
def test_impossible_settings_are_named(wrong):
    with pytest.raises(ConfigError, match=r"model\."):
        GraphMixer.Config(**wrong)
