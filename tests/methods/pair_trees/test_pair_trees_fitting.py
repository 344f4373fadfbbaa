"""Growing and calibrating: few pairs, and columns that say nothing in one part."""

import numpy as np
import pytest
import torch

from hopstate.data.events import EventStream
from hopstate.methods.pair_trees.fitting import Growth, Pairs, grow
from hopstate.methods.pair_trees.trees import PairTrees
from hopstate.tokens.pair_features import varied_columns


def pairs(count: int, missing: bool, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (count, 3) features of events and of other pairs; the second column is known of most events alone."""
    rng = np.random.default_rng(seed)
    events, others = (rng.normal(size=(count, 3)).astype(np.float32) for _ in range(2))
    events[:, 0] += 0.5
    events[: count * 3 // 4, 1], others[count // 4 :, 1] = 1, np.nan
    if missing:
        events[:, 1] = others[:, 1] = np.nan
    return events, others


def grown_from(
    training: tuple[np.ndarray, np.ndarray], validation: tuple[np.ndarray, np.ndarray], without: tuple[int, ...] = (),
    **config: object,
) -> PairTrees:  # fmt: skip
    """Return a model that has grown from features of events and of random pairs, and was judged by others."""
    model = PairTrees(PairTrees.Config(**{"max_trees": 20, **config}), training[0].shape[1], np.empty(0, np.int64))
    judged = Pairs(events={"val": validation[0]}, others={("val", "random"): validation[1]})
    drawn = (training[0], {"random": training[1]})
    grow(Growth(model=model, training=drawn, validation=judged, historical=0.0), seed=0, without=without)
    return model


def grown(count: int, missing: bool = False, **config: object) -> tuple[PairTrees, np.ndarray, np.ndarray]:
    """Return a model that has grown, and validation's features of events and of other pairs."""
    validation = pairs(1000, missing, 1)
    return grown_from(pairs(count, False, 0), validation, **config), *validation


@pytest.mark.parametrize("missing", [False, True])
def test_probabilities_are_calibrated_on_what_predict_sees(missing: bool) -> None:
    """Also where a column is missing in all of validation, which trees send another way than zeros."""
    model, events, others = grown(2000, missing)
    x = np.concatenate([events, others])
    probabilities = model.calibrated(model.forest().scores(x))
    assert probabilities.mean() == pytest.approx(0.5, abs=0.01)


def test_few_pairs_are_told_apart_too() -> None:
    model, events, others = grown(40)
    assert model.forest().scores(events).mean() > model.forest().scores(others).mean() + 0.1


@pytest.mark.parametrize("known", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_column_that_is_known_of_few_among_many_rows_says_nothing(
    known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """scikit-learn draws the rows that it bins by, and refuses a column of which none of them knows a value."""
    count = 150_000
    events, others = pairs(count, False, 0)
    events[:, 1] = others[:, 1] = np.nan
    events[:known, 1] = 5
    one, other = pairs(1000, False, 1)
    model = grown_from((events, others), (one, other), max_trees=3)
    changed = one.copy()
    changed[:, 1] = 5
    np.testing.assert_array_equal(model.forest().scores(one), model.forest().scores(changed))


def test_columns_left_out_are_split_on_by_no_tree() -> None:
    model = grown_from(pairs(2000, False, 0), pairs(1000, False, 1), without=(1,))
    assert (model.importances() > 0).tolist() == [True, False, True]


def test_columns_that_say_nothing_change_no_tree() -> None:
    """Alike or missing in all rows, wherever they stand: trees are those of the others, under their names."""

    def among(x: np.ndarray) -> np.ndarray:
        alike, missing = np.full(len(x), 7.0), np.full(len(x), np.nan)
        return np.stack([alike, x[:, 0], missing, x[:, 1], x[:, 2], alike], 1).astype(np.float32)

    training, validation = pairs(2000, False, 0), pairs(1000, False, 1)
    plain = grown_from(training, validation)
    wide = grown_from(tuple(map(among, training)), tuple(map(among, validation)))  # type: ignore[arg-type]
    events = validation[0]
    np.testing.assert_array_equal(wide.forest().scores(among(events)), plain.forest().scores(events))
    np.testing.assert_array_equal(wide.importances()[[1, 3, 4]], plain.importances())
    assert not wide.importances()[[0, 2, 5]].any()


def test_where_no_column_says_anything_all_pairs_are_alike() -> None:
    same, missing = np.full((300, 3), 2.0, np.float32), np.full((300, 3), np.nan, np.float32)
    for rows, without in ((same, ()), (missing, ()), (pairs(300, False, 0)[0], (0, 1, 2))):
        model = grown_from((rows, rows), (rows, rows), without)
        assert len(np.unique(model.forest().scores(pairs(300, False, 1)[0]))) == 1


def test_forests_that_grow_side_by_side_are_those_that_grow_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of threads; and of the second no pair that met has a say."""
    training, validation, further = pairs(2000, False, 0), pairs(1000, False, 1), pairs(4000, False, 2)[1]
    met = pairs(2000, False, 3)[1] + 3
    given = Pairs(events={"val": validation[0]}, others={("val", "random"): validation[1], ("val", "historical"): met})

    def growth(historical: float = 0.4) -> list[Growth]:
        models = [PairTrees(PairTrees.Config(max_trees=20), 3, np.empty(0, np.int64)) for _ in range(2)]
        drawn = (training[0], {"random": training[1], "historical": met})
        own = Growth(model=models[0], training=drawn, validation=given, historical=historical)
        return [own, own.beside_random(models[1], further)]

    found = []
    for threads in (1, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=threads: count)
        one = growth()
        assert [len(rows) for rows in grow(*one, seed=0)] == [2, 2]
        found.append(one)
    alone = growth()
    for part in alone:
        grow(part, seed=0)
    met = met[::-1] * 2
    given = Pairs(events=given.events, others=given.others | {("val", "historical"): met})
    other = growth(0.9)
    grow(*other, seed=0)
    for i in range(2):
        states = [run[i].model.state_dict() for run in (*found, alone, other)]
        for name, value in states[0].items():
            assert all(torch.equal(value, state[name]) for state in states[1:3])
        assert all(torch.equal(value, states[3][name]) for name, value in states[0].items()) == (i == 1)
    assert len(found[0][1].training[1]["random"]) == 6000


def test_a_growth_may_take_fewer_trees_than_its_model_holds() -> None:
    """Those that rank are fewer in `pair-trees` than the tensors of its runs hold."""
    training, (events, others) = pairs(2000, False, 0), pairs(1000, False, 1)
    judged = Pairs(events={"val": events}, others={("val", "random"): others})
    own = Growth(model=PairTrees(PairTrees.Config(max_trees=20), 3, np.empty(0, np.int64)),
                 training=(training[0], {"random": training[1]}), validation=judged, historical=0.0)  # fmt: skip
    model = PairTrees(PairTrees.Config(max_trees=20), 3, np.empty(0, np.int64))
    few = own.beside_random(model, pairs(2000, False, 2)[1], PairTrees.Config(max_trees=10, max_leaves=4))
    (rows,) = grow(few, seed=0)
    assert [row["trees"] for row in rows] == [10]
    assert int(model.size.max()) == 7  # nodes of four leaves


def test_of_standardised_features_the_first_are_looked_at() -> None:
    """Whatever the rounding of their deviations, which differs from one training split to the next."""
    x = np.random.default_rng(0).gamma(1.0, size=(5000, 12))
    x = ((x - x.mean(0)) / x.std(0)).astype(np.float32)
    x[:, 9] *= 2
    node = np.zeros(5000, np.int64)
    stream = EventStream(src=node, dst=node + 1, t=np.arange(5000), num_nodes=2, edge_attr=x)
    assert varied_columns(stream, np.arange(5000), 4).tolist() == [0, 1, 2, 9]


def test_what_a_few_new_nodes_say_hardly_chooses_how_many_trees_are_kept() -> None:
    """Of nine events the average precision is mostly chance: they have a fiftieth of the say of five hundred."""
    model = PairTrees(PairTrees.Config(max_trees=40), 3, np.empty(0, np.int64))
    training, (events, others) = pairs(2000, False, 0), pairs(1000, False, 1)
    validation = Pairs(
        events={"val": events, "new_val": events[:9]},
        others={("val", "random"): others, ("new_val", "random"): others[:9]},
    )
    drawn = (training[0], {"random": training[1]})
    (rows,) = grow(Growth(model=model, training=drawn, validation=validation, historical=0.0), seed=0)
    for row in rows:
        expected = (500 * row["average_precision"] + 9 * row["new_average_precision"]) / 509
        assert row["mean_average_precision"] == pytest.approx(expected)
