"""A calibration is monotonic, and its probabilities are the frequencies of outcomes."""

import numpy as np
from scipy.special import expit

from hopstate.evaluation.calibration import MAX_CALIBRATION_EVENTS, IsotonicCurve, evenly_spaced, fit_isotonic


def drawn(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scores of any scale, their true probabilities, and outcomes drawn from these."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 2, count)
    chance = expit(scores - 1)
    return scores, chance, (rng.random(count) < chance).astype(np.float64)


def test_a_calibration_is_monotonic_and_recovers_probabilities() -> None:
    scores, chance, y = drawn(20_000, 0)
    curve = fit_isotonic(scores, y, "random")
    found = curve(scores)
    assert (np.diff(found[np.argsort(scores)]) >= 0).all()
    assert np.abs(found - chance).mean() < 0.02
    assert (curve.num_events, curve.ratio) == (y.sum(), round((len(y) - y.sum()) / y.sum(), 2))


def test_a_calibration_does_not_depend_on_row_order_and_is_clipped() -> None:
    scores, _, y = drawn(500, 1)
    curve, back = fit_isotonic(scores, y, "random"), fit_isotonic(scores[::-1], y[::-1], "random")
    np.testing.assert_allclose(back(scores), curve(scores), rtol=1e-12)
    assert curve(np.array([-99.0, 99.0])).tolist() == [curve.values[0], curve.values[-1]]


def test_few_outcomes_give_no_extreme_probability() -> None:
    for count in (1, 3, 10):
        values = fit_isotonic(np.repeat([0.9, 0.1], count), np.repeat([1.0, 0.0], count), "random").values
        assert values.tolist() == [1 / (count + 2), (count + 1) / (count + 2)]


def test_a_calibration_names_its_reference_pairs() -> None:
    text = IsotonicCurve(np.zeros(1), np.zeros(1), 1_200, 3.0, "random").text()
    for part in ("1,200", "3", "random"):
        assert part in text


def test_events_for_a_calibration_are_spread_evenly() -> None:
    assert evenly_spaced(3).tolist() == [0, 1, 2]
    rows = evenly_spaced(10 * MAX_CALIBRATION_EVENTS)
    assert len(rows) == MAX_CALIBRATION_EVENTS
    assert (rows[0], rows[-1]) == (0, 10 * MAX_CALIBRATION_EVENTS - 1)
    assert np.ptp(np.diff(rows)) <= 1
