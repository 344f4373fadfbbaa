"""The stream of blocs is as told: what tells who meets next is the long history of a member, and little else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import coo_matrix

from hopstate.data.events import EventStream
from hopstate.datasets import load_dataset
from hopstate.datasets.temporal_generators import BlocConfig, generate_blocs
from hopstate.errors import ConfigError
from hopstate.evaluation.metrics import average_precision

CALM = BlocConfig(drift=0.0, noise=0.0)


def blocs_of(stream: EventStream) -> np.ndarray:
    """Return the bloc of each sender, of a stream without noise."""
    assert stream.edge_attr is not None
    return stream.edge_attr.argmax(1)


def test_one_time_stamp_a_year_and_one_stream_a_seed() -> None:
    config = BlocConfig()
    made, again = generate_blocs(config), generate_blocs(config)
    assert made.content_hash == again.content_hash == load_dataset("blocs-generated").content_hash
    assert made.content_hash != generate_blocs(replace(config, seed=1)).content_hash
    assert (len(made), made.num_nodes, made.feature_dims) == (
        config.num_events,
        config.num_nodes,
        stream_widths(config),
    )
    assert np.unique(made.t, return_counts=True)[1].tolist() == [config.num_events // config.num_years] * 12
    assert (made.src != made.dst).all()


def stream_widths(config: BlocConfig) -> dict[str, int]:
    return {"node_dim": 0, "edge_dim": config.num_blocs}


def test_members_vote_inside_their_bloc_as_often_as_told_and_stay_in_it() -> None:
    made = generate_blocs(CALM)
    assert made.edge_attr is not None
    bloc = np.full(made.num_nodes, -1)
    bloc[made.src] = blocs_of(made)
    assert (bloc[made.src] == blocs_of(made)).all()  # nobody moves
    known = bloc[made.dst] >= 0
    inside = (bloc[made.src] == bloc[made.dst])[known].mean()
    assert abs(inside - (CALM.within + (1 - CALM.within) / CALM.num_blocs)) < 0.01


def test_blocs_drift_as_slowly_as_told() -> None:
    config = replace(CALM, drift=0.1, num_nodes=100)
    made = generate_blocs(config)
    moved = []
    for year in range(config.num_years - 1):
        now, then = (np.full(config.num_nodes, -1) for _ in range(2))
        for place, at in ((now, year), (then, year + 1)):
            place[made.src[made.t == at]] = blocs_of(made)[made.t == at]
        both = (now >= 0) & (then >= 0)
        moved.append((now != then)[both])
    share = np.concatenate(moved).mean()
    assert 0.06 < share < 0.12  # an eighth of the movers draw the bloc that they are in


def test_the_long_history_tells_what_pairs_neighbors_and_the_last_vote_do_not() -> None:
    config = BlocConfig()
    made = generate_blocs(config)
    assert made.edge_attr is not None
    n, last = made.num_nodes, made.t == config.num_years - 1
    src, dst, votes = made.src[~last], made.dst[~last], made.edge_attr[~last].astype(np.float64)
    total, latest = np.zeros((2, n, config.num_blocs))
    for ends in (src, dst):
        np.add.at(total, ends, votes)
    latest[np.stack([src, dst], 1).ravel()] = votes.repeat(2, 0)  # the last one stays
    rng = np.random.default_rng(0)
    u = np.tile(made.src[last], 2)
    v = np.concatenate([made.dst[last], rng.integers(0, n, last.sum())])
    y = np.repeat([1, 0], last.sum())
    adjacency = coo_matrix((np.ones(len(src)), (src, dst)), (n, n)).tocsr()
    adjacency = adjacency + adjacency.T
    met = np.asarray(adjacency[u, v]).ravel()
    shared = np.asarray(adjacency[u].multiply(adjacency[v]).sum(1)).ravel()

    def told(readings: np.ndarray) -> float:
        """Return what Bayes' rule makes of sums of readings: the chance that both ends are in one bloc."""
        logit = readings / config.noise**2
        share = np.exp(logit - logit.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        return average_precision(y, (share[u] * share[v]).sum(1))

    assert average_precision(y, met) < 0.55
    assert average_precision(y, shared) < 0.60
    assert told(latest) < 0.68
    assert told(total) > 0.80


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"num_nodes": 10}, "blocs"),
        ({"num_events": 5}, "years"),
        ({"within": 1.5}, "within"),
        ({"drift": -0.1}, "drift"),
        ({"noise": float("nan")}, "noise"),
        ({"noise": float("inf")}, "noise"),
    ],
)
def test_bad_settings_are_named(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BlocConfig(**wrong)  # type: ignore[arg-type]
