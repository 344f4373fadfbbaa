import random

import numpy as np
import pytest
import torch

import hopstate
from hopstate.random import named_rng, torch_rng, torch_seeded


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1, 2**32, 2**70])
def test_without_names_it_is_numpys_own_generator(seed: int) -> None:
    draws = named_rng(seed).integers(0, 1 << 62, 5)
    assert (draws == np.random.default_rng(seed).integers(0, 1 << 62, 5)).all()
    assert (named_rng(seed, 2).random(5) == np.random.default_rng([seed, 2]).random(5)).all()
    assert (named_rng(seed, "a").random(5) != named_rng(seed, "b").random(5)).all()


def test_torchs_own_state_is_left_as_it_is() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    with torch_seeded(5):
        inside = torch.rand(4)
    torch.rand(4, generator=torch_rng(1))
    assert torch.equal(torch.rand(4), expected)
    torch.manual_seed(5)
    assert torch.equal(inside, torch.rand(4))


def test_what_is_drawn_after_a_run_is_not_what_was_drawn_after_the_last(tmp_path) -> None:
    """Others name what they make by python's own numbers: a name drawn twice gives the second the first one's code."""
    random.seed(9)
    config, drawn = {"loop.epochs": 1, "loop.seed": 3, "loop.progress": False}, []
    for name in ("a", "b"):
        hopstate.fit("sage", "sbm", out=tmp_path / name, config=config)
        drawn.append(random.random())
        hopstate.predict(tmp_path / name)
        drawn.append(random.random())
    assert len(set(drawn)) == 4
