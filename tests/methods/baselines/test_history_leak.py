"""No event at or after a query's time changes the score of a model that reads histories."""

import numpy as np
import pytest
import torch
from history_cases import EDGE_DIM, NODE_DIM, make_store, make_stream

from hopstate.data.events import EventStream
from hopstate.errors import LeakError
from hopstate.evaluation.leak import check_leak
from hopstate.methods.baselines.dygformer import DyGFormer
from hopstate.methods.baselines.graphmixer import GraphMixer, RecentLinkTokenizer
from hopstate.streaming.history_scorer import HistoryScorer
from hopstate.tokens.history import HistoryConfig, HistoryTokenizer


def _scorer(kind: str, stream: EventStream) -> HistoryScorer:
    torch.manual_seed(0)
    dims = {"node_dim": NODE_DIM, "edge_dim": EDGE_DIM}
    if kind == "dygformer":
        config = DyGFormer.Config(max_length=8, channel_dim=4, time_dim=6, out_dim=5)
        model = DyGFormer(config, **dims)
        inputs = HistoryTokenizer(make_store(stream), stream, HistoryConfig(max_length=8))
    else:
        model = GraphMixer(GraphMixer.Config(num_links=6, dim=8, time_dim=5, out_dim=4), **dims)
        inputs = RecentLinkTokenizer(make_store(stream), stream, num_links=6)
    return HistoryScorer(model, inputs)


@pytest.mark.parametrize("kind", ["dygformer", "graphmixer"])
def test_histories_do_not_leak(kind):
    stream = make_stream(300)
    report = check_leak(lambda altered: _scorer(kind, altered), stream, times=4, batch_size=40)
    assert report.scores > 0


def test_the_leak_check_detects_a_query_that_includes_its_own_time():
    def leaky(altered: EventStream) -> HistoryScorer:
        scorer = _scorer("dygformer", altered)
        strict = scorer.tokenizer.pairs
        scorer.tokenizer.pairs = lambda u, v, t: strict(u, v, np.nextafter(t, np.inf))
        return scorer

    with pytest.raises(LeakError):
        check_leak(leaky, make_stream(300), times=4, batch_size=40)
