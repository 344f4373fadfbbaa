"""What `Run`'s methods pass on are the options of the functions behind them, no more and no fewer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import get_type_hints

import pytest

import hopstate
from hopstate.runs import options
from hopstate.runs.api import Run
from hopstate.runs.model import embeddings

OF = {
    "embeddings": (embeddings, options.VectorOptions),
    "evaluate": (hopstate.evaluate, options.EvaluateOptions),
    "node_outputs": (hopstate.node_outputs, options.NodeOptions),
    "predict": (hopstate.predict, options.PredictOptions),
    "rank": (hopstate.rank, options.RankOptions),
    "score": (hopstate.score, options.ScoreOptions),
    "score_stream": (hopstate.score_stream, options.StreamOptions),
}


@pytest.mark.parametrize("name", OF)
def test_a_run_passes_on_what_the_function_takes(name: str) -> None:
    function, known = OF[name]
    own = set(inspect.signature(getattr(Run, name)).parameters)
    taken = inspect.signature(function).parameters
    assert known.__annotations__.keys() | own - {"self", "options"} == taken.keys() - {"run"}
    types, told = get_type_hints(known), _hints(function)
    assert {key: types[key] for key in types} == {key: told[key] for key in types}


def _hints(function: Callable[..., object]) -> dict[str, object]:
    given = {key: value for key, value in function.__annotations__.items() if key != "return"}
    home = inspect.getmodule(function)
    return {key: eval(value, vars(home)) for key, value in given.items()}
