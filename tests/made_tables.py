"""A small synthetic graph as three tables, for tests of several packages."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hopstate.runs.run import Run, fit

N = 40
SMALL: dict[str, dict[str, Any]] = {  # small settings of each node method
    "gcn": {"model.dim": 8, "model.num_layers": 2},
    "nagphormer": {"model.dim": 8, "model.num_heads": 2, "tokens.num_hops": 2, "tokens.eigenvectors": 2},
    "gmn": {"model.dim": 8, "model.state_dim": 4, "walks.max_length": 2, "walks.repeats": 1, "walks.walks": 2},
}


def tables(seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return edges, features and labels of N nodes."""
    rng = np.random.default_rng(seed)
    names = np.array([f"n{i}" for i in range(N)])
    edges = pd.DataFrame({"source": names[rng.integers(0, N, 120)], "target": names[rng.integers(0, N, 120)]})
    features = pd.DataFrame({"id": names, "a": rng.normal(size=N), "b": rng.normal(size=N)})
    labels = pd.DataFrame({"id": names, "label": np.where(features["a"] > 0, "up", "down")})
    return edges, features, labels


def train_shared(method: str, home: Path) -> Run:
    """Train `home`/method for two epochs on the three tables, each a file; see the fixture `trained`."""
    files = {name: home / f"{method}-{name}.csv" for name in ("edges", "features", "labels")}
    for file, content in zip(files.values(), tables(), strict=True):
        content.to_csv(file, index=False)
    loop = {"epochs": 2, "progress": False, "logger": "none", "device": "cpu"}
    read = {"features": str(files["features"]), "labels": str(files["labels"])}
    return fit(method, files["edges"], out=home / method, config={"loop": loop, "read": read, **SMALL[method]})
