"""`similarity_map`: cosines between the last two hidden states of a pair's tokens (DyG-Mamba, figure 6)."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import hopstate
from hopstate.errors import ConfigError
from hopstate.runs.analysis.explain import asked_tokens
from hopstate.runs.analysis.questions import similarity_map
from hopstate.runs.load import load_run
from hopstate.runs.run import Run
from hopstate.testing.conformance import F32


def test_values_are_scaled_cosines_of_the_last_two_hidden_states(trained: Callable[[str], Run], tmp_path: Path) -> None:
    run = trained("dyg-mamba").path
    found = similarity_map(run, "u1", "v2", 60, latest=100, plot=tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size
    with load_run(run) as (_, task), torch.no_grad():
        model = task.model.eval()
        tokens, _ = asked_tokens(task, "u1", "v2", 60)
        states = [model.encoders[0].encode(tokens)]
        for block in model.encoders[0].blocks:
            states.append(block(states[-1], tokens.offsets, tokens.span_ratios(), False))
    before, after = (x / x.norm(dim=1, keepdim=True) for x in states[-2:])
    order = [tokens.event_ids.tolist().index(event) for event in found.tokens.event_id if event >= 0]
    real = (found.tokens.event_id >= 0).to_numpy()
    cosines = (after @ before.T).double().numpy()
    scaled = (cosines - cosines.min()) / (cosines.max() - cosines.min())
    assert (found.values.min(), found.values.max()) == (0, 1)
    np.testing.assert_allclose(found.values[np.ix_(real, real)], scaled[np.ix_(order, order)], atol=F32)
    told = hopstate.explain(run, "u1", "v2", 60).events
    assert sorted(found.tokens.neighbor) == sorted(told.neighbor)
    few = similarity_map(run, "u1", "v2", 60, latest=3)
    assert few.tokens.end.value_counts().to_dict() == {"source": 3, "target": 3}


def test_other_models_have_none(trained: Callable[[str], Run]) -> None:
    with pytest.raises(ConfigError):
        similarity_map(trained("graphmixer").path, "u1", "v2")
