"""TGB's events, splits, negatives and evaluator, as in py-tgb, on synthetic files in its layout."""

import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import EventRelations, NeighborStore
from hopstate.data.readers.read_events import read_events
from hopstate.data.splits import chronological_split
from hopstate.errors import DataError
from hopstate.evaluation.link import evaluate_link
from hopstate.methods.heuristics.method import Recency
from hopstate.sampling.event_batches import batch_boundaries, event_batches
from hopstate.sampling.negatives import Negatives, one_against_many, tgb_negatives
from hopstate.streaming.replay import replay
from hopstate.testing.conformance import F32_TIGHT


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    """Return py-tgb's dataset over 600 events of tgbl-wiki's layout, its negatives made by its own generator, root."""
    module = pytest.importorskip("tgb.linkproppred.dataset", reason="py-tgb is not installed")
    import torch
    from tgb.linkproppred.negative_generator import NegativeEdgeGenerator
    from tgb.utils.info import PROJ_DIR
    from torch_geometric.data import TemporalData

    home = tmp_path_factory.mktemp("tgb")
    folder = home / "tgbl_wiki"
    folder.mkdir()
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"user": rng.integers(0, 12, 600), "item": rng.integers(0, 30, 600)})
    table.loc[:11, "user"], table.loc[:29, "item"] = np.arange(12), np.arange(30)
    table["t"], table["label"] = np.sort(rng.integers(0, 900, 600)).astype(float), 0
    for i in range(3):
        table[f"f{i}"] = rng.normal(size=600).round(4)
    for name in ("tgbl-wiki_edgelist.csv", "tgbl-wiki_edgelist_v2.csv"):
        table.to_csv(folder / name, index=False)
    root = os.path.relpath(home, PROJ_DIR)
    made = module.LinkPropPredDataset(name="tgbl-wiki", root=root, preprocess=True, download=False)
    data = made.full_data
    whole = TemporalData(
        **{k: torch.from_numpy(data[v]) for k, v in zip(("src", "dst", "t"), ("sources", "destinations", "timestamps"))}
    )
    maker = NegativeEdgeGenerator(
        "tgbl-wiki", 12, 41, num_neg_e=15, strategy="hist_rnd", historical_data=whole[torch.from_numpy(made.train_mask)]
    )
    for split, mask in (("val", made.val_mask), ("test", made.test_mask)):
        maker.generate_negative_samples(whole[torch.from_numpy(mask)], split, str(home))
        shutil.move(home / f"tgbl-wiki_{split}_ns.pkl", made.meta_dict[f"{split}_ns"])
    made.load_val_ns()
    made.load_test_ns()
    return made, root, folder


def test_events_and_split_equal_tgbs(official):
    dataset, root, folder = official
    data = dataset.full_data
    for stream in (
        read_events("tgb:tgbl-wiki", root=root),
        _of_archive(folder),
    ):
        for own, theirs in (("src", "sources"), ("dst", "destinations"), ("t", "timestamps")):
            assert np.array_equal(getattr(stream, own), data[theirs]), own
        np.testing.assert_allclose(stream.edge_attr, data["edge_feat"], rtol=F32_TIGHT)
        split = chronological_split(stream)
        for name in ("train", "val", "test"):
            assert np.array_equal(split.rows(name), np.flatnonzero(getattr(dataset, f"{name}_mask")))


def _of_archive(folder: Path) -> EventStream:
    import zipfile

    with zipfile.ZipFile(folder / "tgbl-wiki-v2.zip", "w") as archive:
        archive.write(folder / "tgbl-wiki_edgelist_v2.csv", "tgbl_wiki/tgbl-wiki_edgelist_v2.csv")
    return read_events(folder / "tgbl-wiki-v2.zip")


@pytest.mark.parametrize("part", ["val", "test"])
def test_ranking_equals_tgbs_evaluator(official, part, tmp_path):
    from tgb.linkproppred.evaluate import Evaluator

    dataset, _, folder = official
    stream = _of_archive(folder)
    split = chronological_split(stream)
    drawn = tgb_negatives(dataset.negative_sampler.eval_set[part], stream, split.rows(part))
    drawn.save(tmp_path / "negatives.npz")
    drawn = Negatives.load(tmp_path / "negatives.npz", stream)
    scorer, new = Recency(NeighborStore.from_stream(stream)), f"new_{part}"
    given = {(part, "ranking"): drawn, (new, "ranking"): drawn.take(split.rows(new))}
    given = {key: value for key, value in given.items() if len(value)}
    report = evaluate_link(scorer, stream, split, part, strategies=("ranking",), negatives=given)
    evaluator = Evaluator(name="tgbl-wiki", k_value=10)
    found = {"mrr": [], "hits@10": []}

    def one_by_one(mine):
        for i in mine:
            row = split.rows(part)[i]
            key = (stream.src[[row]], stream.dst[[row]], stream.t[[row]].astype(int))
            (negative,) = dataset.negative_sampler.query_batch(*key, split_mode=part)
            dst = np.array([stream.dst[row], *negative])
            score = scorer.score(np.full(len(dst), stream.src[row]), dst, np.full(len(dst), stream.t[row]))
            evaluated = evaluator.eval({"y_pred_pos": score[:1], "y_pred_neg": score[1:], "eval_metric": ["mrr"]})
            for name in found:
                found[name].append(evaluated[name])
        return np.zeros(len(mine))

    rows = split.rows(part)
    replay(
        scorer, one_by_one, stream, np.arange(len(rows)), rows=rows, boundaries=batch_boundaries(stream.t[rows], 200),
        history=event_batches(stream, np.arange(rows[0]), batch_size=200),
    )  # fmt: skip
    for name, values in found.items():
        assert report.value(name, "ranking", part) == pytest.approx(np.mean(values), abs=F32_TIGHT)


def test_nodes_with_other_numbers_are_translated():
    stream = EventStream(src=np.array([0, 1]), dst=np.array([2, 3]), t=np.array([5, 6]), num_nodes=4)
    nodes = np.array([3, 2, 1, 0])  # TGB's number → row
    drawn = tgb_negatives({(3, 1, 5): [0.0], (2, 0, 6): np.array([1, 2])}, stream, np.arange(2), nodes=nodes)
    assert drawn.offsets.tolist() == [0, 1, 3]
    assert (drawn.src.tolist(), drawn.dst.tolist()) == ([0, 1, 1], [3, 2, 1])


def test_negatives_of_another_split_or_unknown_nodes_are_rejected():
    stream = EventStream(src=np.array([0]), dst=np.array([1]), t=np.array([5]))
    with pytest.raises(DataError, match="0, 1, 5"):
        tgb_negatives({(0, 1, 6): [1]}, stream, np.arange(1))
    with pytest.raises(DataError):
        tgb_negatives({(0, 1, 5): [7]}, stream, np.arange(1))
    assert len(tgb_negatives({}, stream, np.arange(0))) == 0


def test_negatives_of_selected_events_keep_their_order():
    stream = EventStream(src=np.arange(4), dst=np.arange(4)[::-1].copy(), t=np.arange(4))
    drawn = tgb_negatives({(i, 3 - i, i): range(i) for i in range(4)}, stream, np.arange(4))
    some = drawn.take(np.array([1, 3]))
    assert (some.rows.tolist(), some.offsets.tolist()) == ([1, 3], [0, 1, 4])
    assert (some.src.tolist(), some.dst.tolist()) == ([1, 3, 3, 3], [0, 0, 1, 2])
    assert len(drawn.take(np.arange(0))) == 0
    with pytest.raises(DataError):
        some.take(np.array([2]))


@pytest.fixture(scope="module")
def typed_tgb(tmp_path_factory):
    """Return py-tgb's data set over 400 events of thgl-software's layout, with TGB 2.0's negatives, and its root."""
    module = pytest.importorskip("tgb.linkproppred.dataset", reason="py-tgb is not installed")
    import torch
    from tgb.linkproppred.thg_negative_generator import THGNegativeEdgeGenerator
    from tgb.utils.info import PROJ_DIR
    from torch_geometric.data import TemporalData

    home = tmp_path_factory.mktemp("tgb2")
    folder = home / "thgl_software"
    folder.mkdir()
    rng = np.random.default_rng(0)
    relation = rng.integers(0, 3, 400)
    table = pd.DataFrame({"timestamp": np.sort(rng.integers(0, 90, 400)), "head": rng.integers(0, 8, 400)})
    table["tail"] = np.where(relation == 2, rng.integers(20, 26, 400), rng.integers(8, 20, 400))
    table.assign(relation=relation).to_csv(folder / "thgl-software_edgelist.csv", index=False)
    nodes = np.unique(table[["head", "tail"]])
    types = pd.DataFrame({"node_id": nodes, "type": np.searchsorted([8, 20], nodes, side="right")})
    types.to_csv(folder / "thgl-software_nodetype.csv", index=False)
    root = os.path.relpath(home, PROJ_DIR)
    made = module.LinkPropPredDataset(name="thgl-software", root=root, preprocess=True, download=False)
    names = {"src": "sources", "dst": "destinations", "t": "timestamps", "edge_type": "edge_type"}
    columns = {name: torch.from_numpy(made.full_data[theirs][made.test_mask]) for name, theirs in names.items()}
    maker = THGNegativeEdgeGenerator("thgl-software", 0, len(nodes) - 1, made.node_type)
    maker.generate_negative_samples(TemporalData(**columns), "test", str(home))
    shutil.move(home / "thgl-software_test_ns.pkl", made.meta_dict["test_ns"])
    made.load_test_ns()
    return made, root


def test_negatives_of_tgb_2_are_targets_of_the_relation(typed_tgb):
    from tgb.linkproppred.evaluate import Evaluator

    dataset, root = typed_tgb
    stream = read_events("tgb:thgl-software", root=root)
    split = chronological_split(stream)
    src, dst, t, relation = stream.pairs(split.test)
    published = dataset.negative_sampler.query_batch(src, dst, t, relation, "test")
    drawn = tgb_negatives(published, stream, split.test)
    ours = one_against_many(stream, split, "test", num_negatives="all")
    assert np.array_equal(drawn.offsets, ours.offsets)
    for ends in zip(drawn.offsets, drawn.offsets[1:]):
        assert sorted(drawn.dst[slice(*ends)]) == sorted(ours.dst[slice(*ends)])
    scorer = Recency(NeighborStore.from_stream(stream), relations=EventRelations.of(stream))
    found = evaluate_link(scorer, stream, split, strategies=("ranking",), negatives={("test", "ranking"): drawn})
    evaluator, expected = Evaluator(name="thgl-software", k_value=10), []
    for u, v, when, r, negative in zip(src, dst, t, relation, published, strict=True):
        destinations = np.append(v, negative)
        score = scorer.score(
            *(np.full(len(destinations), one) if one is not destinations else one for one in (u, destinations, when, r))
        )
        given = {"y_pred_pos": score[:1], "y_pred_neg": score[1:], "eval_metric": ["mrr"]}
        expected.append(evaluator.eval(given)["mrr"])
    assert found.value("mrr", "ranking", "test") == pytest.approx(np.mean(expected), abs=F32_TIGHT)
    with pytest.raises(DataError, match="query_batch"):
        tgb_negatives(dataset.negative_sampler.eval_set["test"], stream, split.test)
    with pytest.raises(DataError, match=stream.name):
        tgb_negatives(published[1:], stream, split.test)
