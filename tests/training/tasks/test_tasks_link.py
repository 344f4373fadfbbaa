"""Link prediction as a task: batches, negatives, evaluation, resuming."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hopstate.data.events import EventStream
from hopstate.data.neighbor_store import NeighborStore
from hopstate.data.splits import chronological_split
from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import ConfigError
from hopstate.evaluation.metrics import mean_over_kinds
from hopstate.methods.baselines.dygformer import DyGFormer
from hopstate.methods.baselines.graphmixer import GraphMixer, RecentLinkTokenizer
from hopstate.streaming.history_scorer import HistoryScorer, to_device
from hopstate.testing.conformance import F32_TIGHT
from hopstate.tokens.history import HistoryConfig, HistoryTokenizer
from hopstate.training.run_folder import RunFolder
from hopstate.training.tasks.events import HistoryPairs, Untrained
from hopstate.training.tasks.link import LinkEvaluation, LinkTask
from made_events import LOOP, named, repeating, small_run


def _stream(num_events: int = 300) -> EventStream:
    """Return events in which a node mostly replies to its last partner."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 8, num_events), rng.integers(8, 14, num_events)
    for i in range(1, num_events):
        if rng.random() < 0.7:
            before = np.flatnonzero(src[:i] == src[i])
            dst[i] = dst[before[-1]] if len(before) else dst[i]
    return EventStream(src=src, dst=dst, t=np.sort(rng.integers(0, 200, num_events)).astype(np.float64))


def _task(kind: str = "dygformer", **options: object) -> LinkTask:
    torch.manual_seed(0)
    stream = _stream()
    split = chronological_split(stream)
    stores = [
        NeighborStore.from_events(*(c[split.train] for c in (stream.src, stream.dst, stream.t)), split.train, 14),
        NeighborStore.from_stream(stream),
    ]
    if kind == "dygformer":
        model = DyGFormer(DyGFormer.Config(max_length=6, channel_dim=8, time_dim=8, out_dim=8, dropout=0.1))
        tokenizers = [HistoryTokenizer(s, stream, HistoryConfig(max_length=6)) for s in stores]
    else:
        model = GraphMixer(GraphMixer.Config(num_links=5, dim=8, time_dim=8, out_dim=8, dropout=0.1))
        tokenizers = [RecentLinkTokenizer(s, stream, num_links=5) for s in stores]
    evaluation = {name: options.pop(name) for name in ("evaluation", "negatives") if name in options}
    source = HistoryPairs(
        model,
        stream,
        split,
        train_inputs=tokenizers[0],
        inputs=lambda events: tokenizers[1],
        **{"batch_size": 32, **options},
    )
    return LinkTask(source, **{"evaluation": LinkEvaluation(strategies=("random",)), **evaluation})


def _train(task: LinkTask, epochs: int, lr: float = 3e-3) -> list[float]:
    torch.manual_seed(1)
    optimizer, losses = torch.optim.Adam(task.model.parameters(), lr=lr), []
    for epoch in range(epochs):
        task.model.train()
        for batch in task.batches(epoch):
            optimizer.zero_grad()
            parts = [task.loss(part) for part in batch]
            torch.stack(parts).sum().backward()
            optimizer.step()
            losses.append(float(torch.stack(parts).sum().detach()))
    task.model.eval()
    return losses


def test_an_epoch_contains_every_training_event_once_in_time_order():
    task = _task()
    batches = list(task.batches(0))
    assert len(batches) == task.num_batches(0) == -(-len(task.split.train) // 32)
    sources, destinations = [], []
    for ((tokens, labels, count),) in batches:
        assert count == len(labels)
        half = len(labels) // 2
        assert labels.tolist() == [1.0] * half + [0.0] * half
        ends = tokens.nodes[tokens.offsets[:-1]].reshape(4, half)  # the target is first in each sequence
        assert torch.equal(ends[0], ends[1])  # a negative keeps its source
        sources += ends[0].tolist()
        destinations += ends[2].tolist()
        assert np.isin(ends[3].numpy(), task.stream.dst[task.split.train]).all()
    assert sources == task.stream.src[task.split.train].tolist()
    assert destinations == task.stream.dst[task.split.train].tolist()


def test_training_reads_only_training_events():
    task = _task()
    ids = np.concatenate([tokens.event_ids.numpy() for ((tokens, _, _),) in task.batches(0)])
    assert np.isin(ids[ids >= 0], task.split.train).all()
    task = _task()
    later = task.source.inputs.pairs(np.array([0]), np.array([8]), np.array([1e9]))
    assert int(later.event_ids.max()) > task.split.val[0]


def test_batches_depend_on_seed_and_epoch_and_can_start_anywhere():
    def ends(task, epoch, start=0):
        return [tokens.nodes.tolist() for ((tokens, _, _),) in task.batches(epoch, start)]

    first = ends(_task(), 0)
    assert ends(_task(), 0) == first
    assert ends(_task(), 0, start=3) == first[3:]
    assert ends(_task(), 1) != first
    assert ends(_task(seed=1), 0) != first


def test_a_batch_in_parts_contains_the_same_pairs():
    whole, parts = list(_task().batches(0)), list(_task(microbatch_size=7).batches(0))
    for ((tokens, labels, count),), batch in zip(whole, parts, strict=True):
        assert torch.equal(torch.cat([labels for _, labels, _ in batch]), labels)
        assert {n for _, _, n in batch} == {count}
        assert max(len(labels) for _, labels, _ in batch) <= 7
        assert sum(len(t.nodes) for t, _, _ in batch) == len(tokens.nodes)
    with pytest.raises(ConfigError, match="microbatch_size"):
        _task(microbatch_size=0)
    with pytest.raises(ConfigError, match="microbatch_tokens"):
        _task(microbatch_tokens=0)


@pytest.mark.parametrize(("pairs", "tokens"), [(None, 40), (7, 10), (None, 1), (3, 10**6)])
def test_a_batch_is_cut_evenly_by_its_tokens(pairs, tokens):
    whole = list(_task().batches(0))
    parts = list(_task(microbatch_size=pairs, microbatch_tokens=tokens).batches(0))
    for ((every, labels, count),), batch in zip(whole, parts, strict=True):
        assert torch.equal(torch.cat([part for _, part, _ in batch]), labels)
        assert {n for _, _, n in batch} == {count}
        middle = [t.num_sequences // 2 for t, _, _ in batch]
        assert middle == [len(part) for _, part, _ in batch]
        for first in (True, False):  # the sequences of u, then those of v, pair by pair
            nodes = [t.half(second=not first).nodes for t, _, _ in batch]
            assert torch.equal(torch.cat(nodes), every.half(second=not first).nodes)
        longest = int(every.lengths.view(2, -1).sum(0).max())
        assert all(len(t.nodes) <= tokens + longest or len(part) == 1 for t, part, _ in batch)
    assert max(map(len, parts)) > 1


@pytest.mark.parametrize("kind", ["dygformer", "graphmixer"])
def test_same_seed_same_losses_and_scores(kind):
    results = []
    for _ in range(2):
        task = _task(kind)
        results.append((_train(task, 2), task.predict("test")["score"].tolist()))
    assert results[0] == results[1]
    assert len(set(results[0][0])) == 2 * 7


def test_training_learns_repeat_pairs():
    task = _task()
    before = task.evaluate("val")["average_precision"]
    losses = _train(task, 10)
    assert np.mean(losses[-7:]) < np.mean(losses[:7]) - 0.05
    assert task.evaluate("val")["average_precision"] > max(0.7, before + 0.05)


@pytest.mark.parametrize("kind", ["dygformer", "graphmixer"])
def test_scores_do_not_depend_on_order_or_batch(kind):
    task = _task(kind)
    rng = np.random.default_rng(3)
    src, dst, t = rng.integers(0, 14, 40), rng.integers(0, 14, 40), rng.uniform(0, 250, 40)
    scores = task.scorer("test").score(src, dst, t)
    order = rng.permutation(40)
    torch.testing.assert_close(task.scorer("test").score(src[order], dst[order], t[order]), scores[order])
    small = HistoryScorer(task.model, task.source.inputs, max_queries=3).score(src, dst, t)
    torch.testing.assert_close(small, scores)
    assert task.scorer("test").score(src[:0], dst[:0], t[:0]).shape == (0,)


def test_scoring_keeps_the_mode_of_the_model_and_ignores_dropout():
    task = _task()
    task.model.train()
    query = np.array([1]), np.array([9]), np.array([150.0])
    assert torch.equal(task.scorer("test").score(*query), task.scorer("test").score(*query))
    assert task.model.training


def test_the_epoch_is_selected_by_the_first_strategy_or_by_all():
    kinds = ("random", "historical", "ranking")
    task = _task(evaluation=LinkEvaluation(strategies=kinds, num_negatives=3, select_by="mean"))
    assert task.metric == "mean_average_precision"
    found, rows = task.evaluate("val"), [row for row in task.report("val").rows if "average_precision" in row]
    assert len(rows) >= 2
    four = [
        row["average_precision"] * min(row["num_events"], 500) for row in rows
    ]  # a strategy with few events has less weight
    assert found["mean_average_precision"] == pytest.approx(
        np.sum(four) / sum(min(row["num_events"], 500) for row in rows)
    )
    assert "mrr" not in found
    assert {"mean_average_precision", "mrr"} <= set(task.evaluate("test"))
    first = _task(evaluation=LinkEvaluation(strategies=kinds, num_negatives=3))
    assert first.metric == "average_precision"
    assert "mean_average_precision" not in first.evaluate("val")
    for wrong in ({"select_by": "best"}, {"select_by": "mean", "strategies": ("ranking",)}):
        with pytest.raises(ConfigError, match=r"evaluation\.select_by"):
            LinkEvaluation(**wrong)


def test_equal_sets_of_negatives_count_once_in_the_mean():
    """Events with new nodes have only new pairs: their historical and inductive negatives are equal."""
    task = _task(evaluation=LinkEvaluation(select_by="mean"))
    task.split = replace(task.split, new_val=task.split.val[3:])
    sets = {
        key: drawn
        for key, drawn in task._drawn("val", task.evaluation.selection_strategies).items()
        if key[0] == "new_val"
    }
    assert sets["new_val", "historical"].equals(sets["new_val", "inductive"])
    found = task.evaluate("val")
    kinds = ["", "historical_", "inductive_", "new_", "new_historical_"]
    counts = [found["new_num_events" if kind.startswith("new_") else "num_events"] for kind in kinds]
    expected = mean_over_kinds([found[f"{kind}average_precision"] for kind in kinds], counts)
    assert found["mean_average_precision"] == pytest.approx(expected)
    assert found["new_inductive_average_precision"] == found["new_historical_average_precision"]


def test_equal_link_metrics_are_resolved_by_validation_loss(tmp_path, monkeypatch):
    """A constant metric does not depend on the network, so that its first epoch would be kept."""
    monkeypatch.setattr("hopstate.evaluation.link.average_precision_of", lambda positive, negative: 0.5)
    loop = {"loop": {**LOOP["loop"], "epochs": 4, "optim": {"lr": 0.003}}}
    run = small_run("graphmixer", tmp_path, named(repeating(200)), **loop)
    losses = [row["val_loss"] for row in RunFolder(run.path).history()]
    assert run.best_epoch == 1 + int(np.argmin(losses)) > 1
    assert run.metrics["val"]["loss"] == pytest.approx(min(losses))


def test_metrics_report_their_number_of_events():
    task = _task(evaluation=LinkEvaluation(strategies=("historical", "ranking"), num_negatives=3))
    split = task.split = replace(task.split, new_test=task.split.test[3:10])
    for name in ("val", "test"):
        found = task.evaluate(name)
        assert found["num_events"] == len(split.rows(name))
        assert found.get("new_num_events", 0) == len(split.rows(f"new_{name}"))
        assert all(isinstance(found[key], int) for key in found if "num_events" in key)
    kinds = [found.get(f"num_events_{kind}", 0) for kind in ("repeat_pairs", "new_pairs", "new_nodes")]
    assert sum(kinds) == found["num_events"]


def test_metrics_of_every_part():
    task = _task(
        evaluation=LinkEvaluation(strategies=("historical", "random", "ranking"), num_negatives=3, bootstrap=20)
    )
    assert task.metric == "historical_average_precision"
    assert {"historical_average_precision", "historical_roc_auc"} <= set(task.evaluate("val"))
    assert "average_precision" not in task.evaluate("val")
    test = task.evaluate("test")
    assert {
        "average_precision",
        "roc_auc",
        "historical_average_precision",
        "mrr",
        "hits@10",
        "average_precision_low",
        "mrr_high",
    } <= set(test)
    assert set(task.evaluate("train")) == {"average_precision", "roc_auc", "num_events"}
    assert all(0 <= value <= 1 for name, value in test.items() if "num_events" not in name)
    assert _task(evaluation=LinkEvaluation(strategies=("ranking",))).metric == "mrr"
    with pytest.raises(ConfigError, match="new_val"):
        task.evaluate("new_val")


def test_given_negatives_are_used():
    from hopstate.sampling.negatives import draw_negatives

    stream = _stream()
    split = chronological_split(stream)
    own = draw_negatives(stream, split, "test", seed=77)
    task = _task(negatives={("test", "random"): own})
    scores = task.report("test").scores["test", "random"]
    expected = task.scorer("test").score(own.src, own.dst, stream.t[own.rows])
    np.testing.assert_allclose(scores.negative, expected, rtol=F32_TIGHT)


def test_predictions_have_the_users_ids():
    task = _task()
    table = task.predict("test")
    rows = task.split.test
    assert list(table) == ["row", "src", "dst", "t", "score"]
    np.testing.assert_array_equal(table["src"], task.stream.src[rows])
    expected = task.scorer("test").score(task.stream.src[rows], task.stream.dst[rows], task.stream.t[rows])
    np.testing.assert_allclose(table["score"], expected, rtol=F32_TIGHT)
    task.stream = task.stream.with_(node_ids=Vocabulary(np.array([f"n{i:02}" for i in range(14)])))
    table = task.predict("all")
    assert len(table["score"]) == 300
    assert table["dst"][0] == f"n{task.stream.dst[0]:02}"
    with pytest.raises(ConfigError):
        task.predict("tset")


def test_a_scorer_without_parameters_is_evaluated_the_same_way():
    task = _task(evaluation=LinkEvaluation(strategies=("random",)))
    fixed = LinkTask(
        Untrained(lambda events: task.scorer_over(events), task.stream, task.split), evaluation=task.evaluation
    )
    assert fixed.evaluate("test") == task.evaluate("test")
    assert fixed.num_batches(0) == 0
    assert list(fixed.batches(0)) == []
    assert fixed.loss(None) is None
    assert fixed.state() == {}
    assert not list(fixed.model.parameters())


def test_nested_inputs_move_with_their_types():
    links = _task("graphmixer").source.inputs.pairs(np.array([0]), np.array([8]), np.array([90.0]))
    moved = to_device((links, torch.ones(2), None, 3), torch.device("meta"))
    assert type(moved[0]) is type(links)
    assert type(moved[0].tokens) is type(links.tokens)
    assert moved[0].tokens.gaps.device.type == moved[1].device.type == "meta"
    assert moved[2:] == (None, 3)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"protocol": "mean"}, "protocol"),
        ({"strategies": ()}, "strategies"),
        ({"strategies": ("randm",)}, "randm"),
        ({"num_negatives": 0}, "num_negatives"),
        ({"num_negatives": "every"}, "num_negatives"),
        ({"bootstrap": -1}, "bootstrap"),
    ],
)
def test_impossible_settings_are_named(wrong, name):
    with pytest.raises(ConfigError, match=name):
        LinkEvaluation(**wrong)
    with pytest.raises(ConfigError, match="batch_size"):
        _task(batch_size=0)
