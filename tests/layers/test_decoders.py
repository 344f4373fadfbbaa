"""Decoders of pairs: their formulas, directionality, and independence of pairs."""

import numpy as np
import pytest
import torch
from tests.made_events import LOOP

import hopstate
from hopstate.data.graph import Graph
from hopstate.errors import ConfigError
from hopstate.layers.decoders import DECODERS, LinkDecoder, PairDecoder
from hopstate.testing.conformance import F64


def made(kind, directed):
    torch.manual_seed(0)
    decoder = PairDecoder(kind, 7, directed=directed).double().eval()
    return decoder, torch.randn(5, 7, dtype=torch.float64), torch.randn(5, 7, dtype=torch.float64)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", DECODERS)
def test_directed_and_undirected_scores_are_independent_per_pair(kind, directed):
    decoder, u, v = made(kind, directed)
    there, back = decoder(u, v), decoder(v, u)
    assert torch.allclose(there, back, atol=1e-6) is decoder.symmetric
    assert decoder.symmetric is (kind in ("dot", "mlp") or (kind == "bilinear" and not directed))
    others = torch.stack([v, u, v.flip(0)], 1)
    expected = torch.stack([decoder(u, others[:, i]) for i in range(3)], 1)
    assert torch.allclose(decoder.among(u, others), expected, rtol=F64)


def test_decoders_equal_their_formulas():
    decoder, u, v = made("bilinear", True)
    assert torch.allclose(decoder(u, v), torch.einsum("pi,ij,pj->p", u, decoder.score.weight, v), rtol=F64)
    decoder, u, v = made("dot", False)
    assert torch.allclose(decoder(u, v), torch.einsum("pi,pi->p", u, v), rtol=F64)
    with pytest.raises(ConfigError, match="dot"):
        PairDecoder("dots", 4, directed=False)


class Distance(LinkDecoder):
    """The negative distance of the two embeddings."""

    def forward(self, u, v):
        return -(u - v).norm(dim=-1)


def test_a_registered_decoder_scores_links(monkeypatch, tmp_path):
    monkeypatch.setitem(DECODERS, "distance", Distance)
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(rng.integers(0, 40, (160, 2)), 40, x=rng.normal(size=(40, 4)).astype(np.float32))
    settings = {"link.decoder": "distance", "link.structural_features": False, "link.dim": 4, "model.dim": 4, **LOOP}
    run = hopstate.fit("gcn", graph, out=tmp_path / "run", task="link", config=settings)
    assert 0 < run.metrics["test"]["mrr"] <= 1
    assert hopstate.evaluate(tmp_path / "run")["mrr"] == pytest.approx(run.metrics["test"]["mrr"])
