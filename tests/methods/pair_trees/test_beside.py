"""Trees beside a head: grown from what the run may see, their share validation's, the same however scores are asked."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from hopstate.cli.fit import print_result
from hopstate.data.events import EventStream
from hopstate.layers.pair_history import PairHistory
from hopstate.methods.dyg_mamba.model import DyGMamba
from hopstate.methods.dyg_mamba.naive import dyg_mamba_naive
from hopstate.methods.pair_trees import beside
from hopstate.methods.pair_trees import pair_head as pair_head_module
from hopstate.methods.pair_trees.pair_head import pair_head
from hopstate.methods.pair_trees.trees import PairTrees
from hopstate.runs.analysis.questions import robustness
from hopstate.runs.api import evaluate, fit
from hopstate.runs.load import load_run
from hopstate.runs.queries.card import run_card
from hopstate.runs.report import write_report
from hopstate.streaming.live import go_on, past_of
from hopstate.testing.asserts import F32, F64
from hopstate.tokens.pair_features import EARLIER, GROWING, NAMES
from hopstate.training.config import LoopConfig
from hopstate.training.precision import bare
from hopstate.training.run_folder import RunFolder

LOOP = {"loop.progress": False, "loop.tensorboard": "no", "loop.device": "cpu", "loop.epochs": 1}
WIDTHS = {"model.channel_dim": 4, "model.time_dim": 6, "model.out_dim": 6}
SMALL: dict[str, dict[str, Any]] = {
    "ctdg-ssm": {"model.dim": 6, "model.time_dim": 6, "batch_size": 40, "evaluation.batch_size": 40},
    "dyg-mamba": {**WIDTHS, "history.max_length": 6},
    "dygformer": {**WIDTHS, "model.max_length": 6},
    "graphmixer": {"model.num_links": 4, "model.dim": 6, "model.time_dim": 6, "model.out_dim": 4},
}


def events(count: int = 500) -> EventStream:
    """Return events in which pairs meet again soon, with ties."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 9, count), 9 + rng.integers(0, 9, count)
    for i in range(20, count):
        if rng.random() < 0.6:
            back = i - 1 - rng.integers(0, 8)
            src[i], dst[i] = src[back], dst[back]
    return EventStream(src=src, dst=dst, t=np.sort(rng.integers(0, count, count)), num_nodes=18)


def part(whole: EventStream, rows: slice) -> EventStream:
    return replace(whole, **{name: getattr(whole, name)[rows].copy() for name in ("src", "dst", "t")})


def config(method: str, **more: Any) -> dict[str, Any]:
    given = {"model.pair_history": True, "model.pair_trees": True, "evaluation.choose": "mean"}
    return LOOP | SMALL[method] | given | more


@pytest.fixture(autouse=True)
def _grown_from_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "LEAST", 100)
    monkeypatch.setattr(pair_head_module, "TREES", PairTrees.Config(max_trees=20, max_leaves=8, min_leaf=10))


def joined_of(task: Any) -> Any:
    (head,) = (part for part in task.model.modules() if isinstance(part, PairHistory))
    return head.joined


@pytest.mark.parametrize("method", ["graphmixer"])
def test_validation_chooses_the_share_and_every_door_gives_the_same(method: str, tmp_path: Path) -> None:
    run = fit(method, events(), out=tmp_path / "run", config=config(method))
    with load_run(run.path, events()) as (_, task):
        joined, evaluation = joined_of(task), task.evaluation
        assert joined.rules.kept > 0
        assert not joined.rules.importances()[list(GROWING)].any()
        assert float(joined.share) in beside.SHARES[1:]  # one epoch of so small a network says little
        assert evaluation.choose == "mean"
        best = task.evaluate("val")["mean_average_precision"]
        for share in beside.SHARES:
            joined.share.fill_(share)
            assert task.evaluate("val")["mean_average_precision"] <= best
    kept = evaluate(run.path, split="val")
    assert kept["mean_average_precision"] == best == run.metrics["val"]["mean_average_precision"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ctdg-ssm", "dyg-mamba"])
def test_live_answers_are_those_of_one_call_however_the_stream_is_cut(method: str, tmp_path: Path) -> None:
    run = fit(method, events(), out=tmp_path / "run", config=config(method))
    later = replace(events(60), t=events(60).t + 1000)
    with load_run(run.path, events()) as (_, task):
        joined_of(task).share.fill_(0.5)
        past = past_of(task, events())
        whole = go_on(task, past, later)[0]["score"]
        found = []
        for rows in (slice(0, 1), slice(1, 40), slice(40, 60)):
            scores, past = go_on(task, past, part(later, rows))
            found.append(scores["score"])
        assert np.array_equal(np.concatenate(found), whole)
        joined_of(task).share.fill_(0.0)
        assert not np.array_equal(go_on(task, past_of(task, events()), later)[0]["score"], whole)


@pytest.mark.slow
def test_whose_a_score_is_stands_in_the_result_and_wherever_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(beside, "SHARES", (1.0,))  # validation chooses between the network alone and trees alone
    run = fit("graphmixer", events(), out=tmp_path / "run", config=config("graphmixer"))
    with load_run(run.path, events()) as (_, task):
        assert float(joined_of(task).share) == 1.0  # so small a network says little
    assert RunFolder(run.path).result()["trees_share"] == 1.0
    assert run_card(run.path).count("of a score's logit 100% are the trees'") == 1
    assert re.search(r"^ *events +\d+ +\d+ +\d+ ", run_card(run.path), re.M)  # counts are whole numbers
    card = (run.save_pretrained(tmp_path / "saved") / "README.md").read_text()
    assert "# graphmixer (trees alone) on" in card
    assert "Of a score's logit 100% are the boosted trees'" in card
    print_result(run)
    assert "graphmixer (trees alone), epoch" in capsys.readouterr().out
    page = write_report([run.path], tmp_path / "page.html").read_text()
    assert "graphmixer (trees alone)" in page
    assert "graphmixer (trees alone) 100%" in page
    table = robustness(run.path, levels=[0.0, 0.5], noise=["sequences"], data=events())
    assert table.attrs["note"].startswith("noise in sequences does not reach what the head reads of the pair's own")
    assert "100% of a score's logit" in table.attrs["note"]
    by_level = [list(rows.average_precision) for _, rows in table.groupby("sigma")]
    assert by_level[0] == by_level[1]
    assert robustness(run.path, levels=[0.0], noise=["stream"], data=events()).attrs["note"] == ""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ctdg-ssm", "graphmixer"])
@pytest.mark.parametrize(
    ("mixture", "met"),
    [({}, 0.4), ({"historical": 0.0}, 0.0), ({"historical": 0.1, "inductive": 0.3, "popular": 0.2}, 0.4)],
)
def test_trees_weigh_pairs_that_met_as_the_runs_own_mixture_does_or_more(
    method: str, mixture: dict[str, float], met: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights: list[list[float]] = []
    grow = beside.grow
    monkeypatch.setattr(
        beside, "grow", lambda *args, **how: weights.append([one.historical for one in args]) or grow(*args, **how)
    )
    given = {f"negatives.mixture.{kind}": share for kind, share in mixture.items()}
    fit(method, events(), out=tmp_path / "run", config=config(method, **given))
    assert weights == [[pytest.approx(met, abs=F64), 0]]


@pytest.mark.slow
def test_without_enough_events_there_are_no_trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "LEAST", 10_000)
    run = fit("graphmixer", events(), out=tmp_path / "run", config=config("graphmixer"))
    plain = config("graphmixer", **{"model.pair_trees": False})
    alone = fit("graphmixer", events(), out=tmp_path / "alone", config=plain)
    assert run.metrics["val"] == alone.metrics["val"]
    assert run.metrics["test"] == alone.metrics["test"]
    assert "trees_share" not in RunFolder(run.path).result()
    assert "trees" not in run_card(run.path)


@pytest.mark.slow
def test_trees_alone_need_no_history_in_the_head(tmp_path: Path) -> None:
    given = config("graphmixer", **{"model.pair_history": False})
    run = fit("graphmixer", events(), out=tmp_path / "run", config=given)
    with load_run(run.path, events()) as (_, task):
        (head,) = (part for part in task.model.modules() if isinstance(part, PairHistory))
        assert head.dim == 0
        assert head.joined is not None
        assert float(head.joined.share) > 0


def test_heads_over_histories_read_fewer_features_than_their_trees() -> None:
    class Both:
        pair_history, pair_trees = True, True

    head = pair_head(EARLIER, Both, len(NAMES))
    assert head is not None
    assert (head.num_features, head.given) == (EARLIER, len(NAMES))
    x = torch.randn(5, len(NAMES))
    told = head(x)
    x[:, EARLIER:] = 0
    assert torch.equal(told, head(x))


def grown(width: int = 5) -> PairTrees:
    from sklearn.ensemble import HistGradientBoostingClassifier

    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, width)).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = np.nan
    y = (np.nan_to_num(x[:, 0]) + np.nan_to_num(x[:, 1]) ** 2 > 0.5).astype(int)
    trees = PairTrees(PairTrees.Config(max_trees=20, max_leaves=8), width, np.empty(0, np.int64))
    grower = HistGradientBoostingClassifier(max_iter=20, max_leaf_nodes=8, early_stopping=False).fit(x, y)
    trees.put(grower._predictors, float(np.asarray(grower._baseline_prediction).reshape(-1)[0]))
    return trees


@pytest.mark.parametrize("rows", [0, 1, 33])
def test_written_out_trees_say_what_the_compiled_ones_do(rows: int) -> None:
    trees = grown()
    x = torch.randn(rows, 5, generator=torch.Generator().manual_seed(2))
    x[x > 1.2] = torch.nan
    torch.testing.assert_close(trees.as_program()(x), trees(x), rtol=F64, atol=F64)
    shares = trees.feature_shares(x.numpy())
    rest = float(trees.baseline) + float(trees.forest().value[trees.forest().first[:-1]].sum())
    np.testing.assert_allclose(shares.sum(1) + rest, trees(x).numpy(), rtol=F64, atol=F64)


def test_no_trees_say_nothing() -> None:
    trees = PairTrees(PairTrees.Config(), 5, np.empty(0, np.int64))
    assert trees(torch.randn(4, 5)).tolist() == trees.as_program()(torch.randn(4, 5)).tolist() == [0.0] * 4


@pytest.mark.slow
def test_shares_of_events_and_features_add_up_with_trees(tmp_path: Path) -> None:
    run = fit("dyg-mamba", events(), out=tmp_path / "run", config=config("dyg-mamba"))
    with load_run(run.path, events()) as (_, task):
        model = bare(task.model).eval()
        assert isinstance(model, DyGMamba)
        joined_of(task).share.fill_(0.5)
        stream, rows = task.stream, np.arange(480, 487)
        tokens = task.source.inputs.pairs(stream.src[rows], stream.dst[rows], stream.t[rows])
        with torch.no_grad():
            logits = model(tokens)
            torch.testing.assert_close(dyg_mamba_naive(model, tokens), logits, rtol=F32, atol=F32)
        part, told, rest = model.shares(tokens)
        sums = torch.zeros(14, dtype=torch.float64).index_add(0, tokens.rows(), part.double()).view(2, -1).sum(0)
        assert told is not None
        torch.testing.assert_close(sums + told.sum(1) + rest, logits, rtol=F32, atol=F32)
        trees = 0.5 * joined_of(task).rules.feature_shares(tokens.pair.numpy())
        assert (np.abs(trees).sum(1) > 0).all()
        np.testing.assert_allclose(told[:, EARLIER:].numpy(), trees[:, EARLIER:], rtol=F32)


@pytest.mark.slow
def test_a_run_that_was_cut_goes_on_with_its_trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = config("graphmixer", **{"loop.epochs": 2, "loop.checkpoint_seconds": 1e-9})
    choose = beside.TreesBeside.choose
    whole = fit("graphmixer", events(), out=tmp_path / "whole", config=given)
    calls = []

    def cut(self: Any, *args: Any) -> Any:
        calls.append(0)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return choose(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(beside.TreesBeside, "choose", cut)
        with pytest.raises(KeyboardInterrupt):
            fit("graphmixer", events(), out=tmp_path / "cut", config=given)
    with monkeypatch.context() as patched:  # of the checkpoint, not grown again; the floor grows by itself
        patched.setattr(beside, "grow", None)
        again = fit("graphmixer", events(), out=tmp_path / "cut", config=given, resume=True)
    assert again.metrics == whole.metrics


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits(tmp_path: Path) -> None:
    given = config("graphmixer", **{"loop.epochs": 2})
    whole = fit("graphmixer", events(), out=tmp_path / "whole", config=given)
    again = fit("graphmixer", events(), out=tmp_path / "again", config=given)
    assert whole.metrics == again.metrics


@pytest.mark.slow
def test_the_unit_of_time_changes_no_answer(tmp_path: Path) -> None:
    own = replace(events(), time_unit="s")
    fine = replace(own, t=own.t * 1000, time_unit="ms")
    run = fit("graphmixer", own, out=tmp_path / "s", config=config("graphmixer"))
    other = fit("graphmixer", fine, out=tmp_path / "ms", config=config("graphmixer"))
    assert other.metrics["val"] == run.metrics["val"]
    assert other.metrics["test"] == run.metrics["test"]
    with load_run(run.path, own) as (_, task):
        joined_of(task).share.fill_(0.75)
        pairs = own.src[-60:], own.dst[-60:]
        told = np.asarray(task.scorer("test").score(*pairs, own.t[-60:]))
        assert np.array_equal(np.asarray(task.source.scorer_over(task.model, fine).score(*pairs, fine.t[-60:])), told)


@pytest.mark.slow
def test_the_number_of_threads_changes_neither_trees_nor_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier as Grower

    found, growing, before, alone = [], set[int](), torch.get_num_threads(), Grower.fit
    pairs = [column.copy() for column in (events().src, events().dst, events().t)]
    run = fit("ctdg-ssm", events(), out=tmp_path / "run", config=config("ctdg-ssm"))

    def seen(self: Any, *args: Any) -> Any:  # sums of few rows have the same bits in any order
        growing.update(one["num_threads"] for one in threadpool_info() if one["user_api"] == "openmp")
        return alone(self, *args)

    monkeypatch.setattr(Grower, "fit", seen)
    with load_run(run.path, events()) as (_, task):
        joined, scored = joined_of(task), task.scorer("val")
        joined.share.fill_(0.5)
        kept = {name: value.clone() for name, value in joined.rules.state_dict().items()}
        for count in (1, 2, 3):
            joined.rules.keep(0)
            torch.set_num_threads(count)
            try:
                with threadpool_limits(count):
                    grower = beside.TreesBeside(joined, task, LoopConfig(progress=False), historical=beside.LEAST_MET)
                    assert grower._grown(beside._features(scored))
                    found.append(np.asarray(scored.score(*pairs)))
            finally:
                torch.set_num_threads(before)
            assert all(torch.equal(value, kept[name]) for name, value in joined.rules.state_dict().items())
    assert growing == {1}
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
