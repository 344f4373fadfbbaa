"""A small made graph as three tables, for tests of several rooms."""

import numpy as np
import pandas as pd

N = 40


def tables(seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return edges, features and labels of N nodes."""
    rng = np.random.default_rng(seed)
    names = np.array([f"n{i}" for i in range(N)])
    edges = pd.DataFrame({"source": names[rng.integers(0, N, 120)], "target": names[rng.integers(0, N, 120)]})
    features = pd.DataFrame({"id": names, "a": rng.normal(size=N), "b": rng.normal(size=N)})
    labels = pd.DataFrame({"id": names, "label": np.where(features["a"] > 0, "up", "down")})
    return edges, features, labels
