"""Seeds: one place for generators, equal names give equal draws, global states do not change."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import numpy as np
import pytest
import torch

import hopstate
import made_tables
from hopstate.random import named_rng, torch_rng, torch_seeded

SOURCE = Path(hopstate.__file__).parent
HOMES = {  # files that may create a generator
    "random.py",
    "methods/pair_trees/bins.py",  # draws the rows that scikit-learn would draw
    "sampling/negatives.py",  # DyGLib's own sequence of draws, from numpy's legacy generator
    "testing/conformance.py",  # seeds a model's weights as a user's script would
}
MAKERS = {"default_rng", "fork_rng", "manual_seed", "RandomState"}


def test_generators_are_created_in_one_place() -> None:
    """A generator created elsewhere may miss the run's seed."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        name, text = path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8")
        if name not in HOMES and any(f".{maker}" in text for maker in MAKERS):
            nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute))
            found += [f"{name}:{node.lineno}" for node in nodes if node.attr in MAKERS]
    assert not found, "use hopstate.random.named_rng, torch_rng or torch_seeded"


@pytest.mark.parametrize("seed", [7, 2**70])
def test_a_generator_without_names_equals_numpys(seed: int) -> None:
    draws = named_rng(seed).integers(0, 1 << 62, 5)
    assert (draws == np.random.default_rng(seed).integers(0, 1 << 62, 5)).all()
    assert (named_rng(seed, 2).random(5) == np.random.default_rng([seed, 2]).random(5)).all()
    assert (named_rng(seed, "a").random(5) == named_rng(seed, "a").random(5)).all()
    assert (named_rng(seed, "a").random(5) != named_rng(seed, "b").random(5)).all()


def test_the_global_state_of_torch_is_restored() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    with torch_seeded(5):
        inside = torch.rand(4)
    torch.rand(4, generator=torch_rng(1))
    assert torch.equal(torch.rand(4), expected)
    torch.manual_seed(5)
    assert torch.equal(inside, torch.rand(4))


def test_a_run_does_not_seed_pythons_generator(tmp_path: Path) -> None:
    """torch-geometric names generated modules by Python's generator: equal names would share code."""
    random.seed(9)
    drawn = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        run = made_tables.train_shared("gcn", tmp_path / name)
        drawn.append(random.random())
        run.predict()
        drawn.append(random.random())
    assert len(set(drawn)) == 4
