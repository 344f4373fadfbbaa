"""Features and labels belong to the nodes that they name, in any order of rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import hopstate
from hopstate.errors import DataError

N = 60
draw = np.random.default_rng(11)
KIND = draw.integers(0, 2, N)
LINKS = pd.DataFrame({"source": draw.integers(0, N, 180), "target": draw.integers(0, N, 180)})
TRAITS = pd.DataFrame({"id": np.arange(N), "a": 2.0 * KIND + draw.normal(0, 0.1, N), "b": draw.normal(size=N)})
NAMES = np.array([f"p{i:03d}" for i in range(N)])
LOOP = {"epochs": 2, "progress": False, "logger": "none", "device": "cpu"}


@pytest.mark.parametrize("labels", [KIND, torch.from_numpy(KIND), pd.Series(KIND), pd.Series(KIND, pd.Index(range(N)))])
def test_features_with_ids_are_in_the_order_of_an_array_of_labels(labels: Any) -> None:
    graph = hopstate.read_graph(LINKS, features=TRAITS.sample(frac=1, random_state=1), labels=labels)
    np.testing.assert_allclose(graph.x[:, 0], TRAITS.a, rtol=1e-6)
    assert graph.y.tolist() == KIND.tolist()
    assert not any("/" in note or ".npy" in note for note in graph.notes)


def test_files_of_features_and_labels_are_aligned(tmp_path: Path) -> None:
    LINKS.to_csv(tmp_path / "links.csv", index=False)
    TRAITS.sample(frac=1, random_state=1).to_csv(tmp_path / "traits.csv", index=False)
    np.save(tmp_path / "kind.npy", KIND)
    files = {"features": tmp_path / "traits.csv", "labels": tmp_path / "kind.npy"}
    graph = hopstate.read_graph(tmp_path / "links.csv", **files)
    np.testing.assert_allclose(graph.x[:, 0], TRAITS.a, rtol=1e-6)


def test_a_missing_id_of_features_is_named() -> None:
    with pytest.raises(DataError, match=r"\b17\b"):
        hopstate.read_graph(LINKS, features=TRAITS.drop(index=17), labels=KIND)
    with pytest.raises(DataError, match=r"features.*p000"):
        hopstate.read_graph(LINKS, features=TRAITS.assign(id=NAMES), labels=KIND)


@pytest.mark.parametrize("name", [None, "kind", "id"])
def test_a_column_of_labels_is_aligned_by_its_index(name: str | None) -> None:
    column = pd.Series(KIND, name=name).sample(frac=1, random_state=3)
    graph = hopstate.read_graph(LINKS, features=TRAITS, labels=column)
    assert graph.y.tolist() == KIND.tolist()
    half = hopstate.read_graph(LINKS, features=TRAITS, labels=column[: N // 2])
    assert half.y[column.index[: N // 2]].tolist() == column[: N // 2].tolist()
    assert (half.y < 0).sum() == N - N // 2


def test_an_index_of_texts_is_named_by_the_user() -> None:
    named = LINKS.apply(lambda ends: NAMES[ends])
    traits, column = TRAITS.assign(id=NAMES), pd.Series(KIND, index=NAMES)
    with pytest.raises(DataError, match=r"labels.*index.*p000"):
        hopstate.read_graph(named, features=traits, labels=column)
    graph = hopstate.read_graph(named, features=traits, labels=column.rename_axis("id").sample(frac=1, random_state=3))
    assert graph.y.tolist() == KIND.tolist()


def test_every_function_aligns_features(tmp_path: Path) -> None:
    shuffled, column = TRAITS.sample(frac=1, random_state=1), pd.Series(KIND).sample(frac=1, random_state=3)
    runs = [
        hopstate.fit("mlp", LINKS, features=features, labels=labels, out=tmp_path / str(at), config={"loop": LOOP})
        for at, (features, labels) in enumerate([(TRAITS, KIND), (shuffled, KIND), (TRAITS, column)])
    ]
    assert all(run.metrics == runs[0].metrics for run in runs)
    expected = hopstate.evaluate(runs[0].path)
    for features, labels in ((shuffled, KIND), (TRAITS, column)):
        read = {"features": features, "labels": labels}
        assert hopstate.evaluate(runs[0].path, data=LINKS, read=read) == expected
        frames = [hopstate.predict(runs[0].path, data=LINKS, read=own) for own in (read, {"features": TRAITS})]
        assert frames[0]["prediction"].tolist() == frames[1]["prediction"].tolist()
