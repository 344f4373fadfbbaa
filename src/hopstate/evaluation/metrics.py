"""Classification metrics over pooled scores, from scikit-learn; what is undefined is NaN."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hopstate.errors import ConfigError, DataError, nearest


def check_scores(scores: np.ndarray, what: str = "scores") -> np.ndarray:
    """Return scores as float64; what names them in the message.

    Raises:
        DataError: a score is NaN or infinite; the first is named.
    """
    scores = np.asarray(scores, np.float64)
    bad = np.flatnonzero(~np.isfinite(scores).reshape(len(scores), -1).all(1)) if scores.size else scores
    if len(bad):
        raise DataError(f"{len(bad)} of {len(scores)} {what} are NaN or infinite, the first at row {bad[0]}")
    return scores


def accuracy(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the share of rows whose largest of probabilities (n, C) is the class y (n,)."""
    return float((probabilities.argmax(1) == y).mean()) if len(y) else float("nan")


def roc_auc(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the area under the ROC curve of y (n,) in {0, 1}, probabilities (n, 2) or scores (n,); else NaN.

    >>> roc_auc(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]))
    0.75
    """
    from sklearn.metrics import roc_auc_score

    scores = _positive(probabilities)
    return float(roc_auc_score(y, scores)) if len(np.unique(y)) == 2 else float("nan")


def average_precision(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the average precision of y (n,) in {0, 1}, probabilities (n, 2) or scores (n,); NaN without positives."""
    from sklearn.metrics import average_precision_score

    scores = _positive(probabilities)
    return float(average_precision_score(y, scores)) if np.any(y) else float("nan")


def macro_f1(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the unweighted mean over classes of F1, from labels y (n,) and probabilities (n, C)."""
    from sklearn.metrics import f1_score

    return float(f1_score(y, probabilities.argmax(1), average="macro")) if len(y) else float("nan")


def cross_entropy(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the mean negative log-probability, in nats, of the true class y (n,) under probabilities (n, C)."""
    if not len(y):
        return float("nan")
    chosen = np.take_along_axis(probabilities, y[:, None], 1)[:, 0]
    return float(-np.log(np.maximum(chosen, np.finfo(np.float64).tiny)).mean())


def _positive(probabilities: np.ndarray) -> np.ndarray:
    return check_scores(probabilities if probabilities.ndim == 1 else probabilities[:, 1])


CLASSIFICATION: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": accuracy,
    "roc_auc": roc_auc,
    "average_precision": average_precision,
    "macro_f1": macro_f1,
}


def classification_metrics(names: tuple[str, ...], y: np.ndarray, probabilities: np.ndarray) -> dict[str, float]:
    """Return the metrics of those names and the cross-entropy ("loss") of labels y (n,) and probabilities (n, C).

    Raises:
        ConfigError: an unknown metric, or a two-class metric asked for other than two classes.
        DataError: a probability is NaN.
    """
    check_scores(probabilities, "predictions")
    for name in names:
        if name not in CLASSIFICATION:
            raise ConfigError(
                f"unknown metric {name!r}{nearest(name, CLASSIFICATION)}; known: {', '.join(CLASSIFICATION)}"
            )
        if name in ("roc_auc", "average_precision") and probabilities.shape[1] != 2:
            raise ConfigError(f"metric {name} needs 2 classes, the data have {probabilities.shape[1]}; use accuracy")
    return {name: CLASSIFICATION[name](y, probabilities) for name in names} | {"loss": cross_entropy(y, probabilities)}
