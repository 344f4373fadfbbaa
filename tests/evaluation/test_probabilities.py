"""How far pairs that met are raised is what a mixture took from them, and a curve rises with what it orders by."""

import numpy as np
import pytest
from scipy.special import expit, logit

from hopstate.evaluation.probabilities import Curve, fitted, order_of, raise_of, raised
from hopstate.testing.asserts import F32_TIGHT, F64


def asked(count: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return scores, outcomes and who met, of a model that knows all beside a mixture, and the summand it lacks.

    A tenth of all pairs met; events are drawn with weights of a normal variable, twice as often where pairs met. Beside
    random pairs a share of the others is one that met, so a logit there is lower by the log of how much denser the
    mixture is, and where pairs did not meet it is higher by that of the rest.
    """
    rng = np.random.default_rng(seed)
    n = 40 * count
    met = rng.random(n) < 0.1
    odds = rng.normal(0, 1, n) + np.log(2) * met  # of an event against a random pair
    events = rng.choice(n, count, p=np.exp(odds) / np.exp(odds).sum())
    others = rng.integers(0, n, count)
    row = np.concatenate([events, others])
    lacking = np.log((1 - share) + share / 0.1), np.log(1 - share)
    scores = expit(odds[row] - np.where(met[row], *lacking))
    return scores, np.repeat([1.0, 0.0], count), met[row], lacking[0] - lacking[1]


@pytest.mark.parametrize("share", [0.0, 0.25, 0.6])
def test_the_raise_is_what_the_mixture_took(share: float) -> None:
    scores, y, met, lacking = asked(12_000, share, 1)
    assert abs(raise_of(scores, y, met) - lacking) < 0.15
    order = raised(scores, met, lacking)
    assert raise_of(expit(order), y, met) == pytest.approx(0, abs=0.1)


def test_it_does_not_hang_on_the_order_of_rows_or_the_precision_of_scores() -> None:
    scores, y, met, _ = asked(500, 0.25, 0)
    by = raise_of(scores, y, met)
    assert raise_of(scores[::-1], y[::-1], met[::-1]) == pytest.approx(by, rel=F32_TIGHT)
    single = scores.astype(np.float32)
    single[:3] = 1.0
    assert raise_of(single, y, met) == pytest.approx(raise_of(single.astype(np.float64), y, met), rel=F64)


@pytest.mark.parametrize("scale", [0.5, 2.0, 3.0])
def test_it_is_in_units_of_the_models_own_logit(scale: float) -> None:
    scores, y, met, _ = asked(4000, 0.25, 0)
    assert raise_of(expit(scale * logit(scores)), y, met) == pytest.approx(scale * raise_of(scores, y, met), rel=0.05)


def test_nothing_is_raised_where_nothing_is_told() -> None:
    scores, y, met, _ = asked(300, 0.25, 2)
    assert raise_of(scores, np.ones_like(y), met) == 0
    assert raise_of(scores, y, np.zeros_like(met)) == 0
    assert raise_of(scores, y, np.ones_like(met)) == 0


@pytest.mark.parametrize("count", [1, 3, 10])
def test_little_evidence_moves_little(count: int) -> None:
    """A few events that met beside none that did: without a belief the fit would have no end."""
    y, met = np.repeat([1.0, 0.0], 100), np.zeros(200, bool)
    met[:count] = True
    for scores in (np.full(200, 0.5), 0.5 + np.linspace(0.1, 0, 200), np.repeat([0.9, 0.1], 100)):
        assert 0 <= raise_of(scores, y, met) < 0.3 * (1 + count)
    some = np.r_[:count, 100 : 100 + count]
    drawn = [raise_of(*(column[some] for column in asked(100, 0.25, seed)[:3])) for seed in range(60)]
    assert max(map(abs, drawn)) < 3


def two(count: int, seed: int, own: float, other: float, by: float) -> tuple[np.ndarray, ...]:
    """Return scores, outcomes, who met and rules, outcomes drawn from so much of both logits and a summand."""
    rng = np.random.default_rng(seed)
    z, rules, met = rng.normal(0, 2, count), rng.normal(0, 2, count), rng.random(count) < 0.3
    y = (rng.random(count) < expit(own * z + other * rules + by * met - 0.7)).astype(float)
    return expit(z), y, met, rules


@pytest.mark.parametrize(("own", "other", "by"), [(0.6, 0.4, 1.0), (0.9, 0.3, -0.5), (0.0, 1.0, 0.0), (1.0, 0.0, 0.7)])
def test_the_share_of_rules_is_what_outcomes_were_drawn_from(own: float, other: float, by: float) -> None:
    found = order_of(*two(30_000, 0, own, other, by))
    assert found == pytest.approx((by / (own + other), other / (own + other)), abs=0.05)


def test_neither_of_two_speaks_against_itself() -> None:
    """Rules that say the contrary have no share, and scores that do have none; the other is as good as alone."""
    scores, y, met, rules = two(5_000, 1, 1.0, -0.5, 0.0)
    assert order_of(scores, y, met, rules)[1] == 0
    assert order_of(1 - scores, y, met, rules)[1] == 0  # neither is worth a thing
    scores, y, met, rules = two(5_000, 1, -0.5, 1.0, 0.0)
    assert order_of(scores, y, met, rules)[1] == 1


def test_an_order_of_two_is_told_by_outcomes_alone() -> None:
    """Not by the order of rows, a constant that all rules add, or what few say."""
    given = two(1_000, 2, 0.5, 0.5, 0.5)
    by, share = order_of(*given)
    back = order_of(*(column[::-1] for column in given))
    assert back == pytest.approx((by, share), abs=F32_TIGHT)
    assert order_of(*given[:3], given[3] + 7) == pytest.approx((by, share), abs=F32_TIGHT)
    scores, _, met, rules = (column[:4] for column in given)
    assert order_of(scores, np.ones(4), met, rules) == (0.0, 0.0)
    assert order_of(scores, np.array([1.0, 0, 1, 0]), np.zeros(4, bool), rules)[0] == 0
    by, share = order_of(scores, np.array([1.0, 0, 1, 0]), met, rules)
    assert abs(by) < 2
    assert 0 <= share <= 1


def test_a_curve_of_two_rises_with_their_order_and_says_so() -> None:
    scores, y, met, rules = two(2_000, 3, 0.5, 0.5, 0.5)
    by, share = order_of(scores, y, met, rules)
    curve = fitted(scores, y, "random", met, by, rules, share)
    order, chance = curve.ordered(scores, met, rules), curve(scores, met, rules)
    assert order.tolist() == pytest.approx(((1 - share) * logit(scores) + share * rules + by * met).tolist(), rel=F64)
    assert (np.diff(chance[np.argsort(order)]) >= 0).all()
    assert curve.at(order).tolist() == chance.tolist()
    assert f"{share:.0%}" in curve.text()
    with pytest.raises(AssertionError):
        curve(scores, met)


def test_useless_scores_leave_the_order_to_who_met_and_do_not_jump() -> None:
    """Whether chance made their slope a little more or less than none."""
    found = []
    for seed in range(8):
        _, y, met, _ = asked(1000, 0.25, seed)
        scores = expit(np.random.default_rng(seed).normal(0, 1, len(y)))
        found.append(raise_of(scores, y, met))
    assert min(found) > 3
    assert max(found) < 3 * min(found)


def test_a_curve_rises_with_its_order() -> None:
    scores, y, met, _ = asked(400, 0.25, 3)
    by = raise_of(scores, y, met)
    curve = fitted(scores, y, "random", met, by)
    order, chance = curve.ordered(scores, met), curve(scores, met)
    assert (np.diff(chance[np.argsort(order)]) >= 0).all()
    assert chance.mean() == pytest.approx(0.5, abs=0.02)
    assert curve.met == by
    np.testing.assert_allclose(order, logit(scores) + by * met, rtol=0, atol=F64)
    assert curve(np.array([0.0, 1.0]), np.array([False, True])).tolist() == [curve.values[0], curve.values[-1]]


def test_without_a_raise_scores_stand_as_they_are() -> None:
    scores, y, met, _ = asked(100, 0.25, 4)
    curve = fitted(scores - 5, y, "random", met)
    assert curve.ordered(scores - 5, met).tolist() == (scores - 5).tolist()
    assert curve(scores - 5, met).tolist() == curve(scores - 5).tolist()
    kept = Curve(curve.scores, curve.values, 3, 1.0, "random")
    assert kept(scores - 5).tolist() == curve(scores - 5).tolist()
