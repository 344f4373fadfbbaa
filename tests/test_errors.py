"""Ranges of settings, and hints with the nearest name."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass, replace

import pytest

from hopstate.errors import ConfigError, check_range, closest, nearest
from hopstate.methods import get_method
from hopstate.methods.config import config_from

RANGES = [
    ({"minimum": 1}, [1, 2.5, math.inf, None], [0, 0.999, -math.inf]),
    ({"above": 0}, [1e-300, 3, None], [0, -1]),
    ({"minimum": 0, "below": 1}, [0, 0.5], [1, -1e-9]),
    ({"above": 0, "maximum": 1}, [1, 0.5], [0, 1.001]),
    ({"minimum": 0, "maximum": 1}, [0, 1], [-1, 2]),
]


def test_a_range_accepts_values_inside_and_rejects_others() -> None:
    for ends, inside, outside in RANGES:
        for value in inside:
            check_range("loop.", **ends, other=inside[0], width=value)
        for value in [*outside, math.nan]:
            with pytest.raises(ConfigError, match=r"loop\.width") as raised:
                check_range("loop.", **ends, other=inside[0], width=value)
            assert str(value) in str(raised.value)


def owners(config: object, where: str = "") -> list[tuple[str, object]]:
    """Return the nested dataclasses of a configuration, by dotted name."""
    inner = [(f"{where}{f.name}.", getattr(config, f.name)) for f in fields(config)]
    return [(where, config), *(pair for name, value in inner if is_dataclass(value) for pair in owners(value, name))]


@pytest.mark.parametrize("name", ["ctdg-ssm", "dyg-mamba", "gcn", "gmn", "nagphormer", "pair-trees"])
def test_every_setting_of_a_method_rejects_nan(name: str) -> None:
    method, accepted = get_method(name), []
    for where, owner in owners(config_from(method, {"data": "x"})):
        for field in fields(owner):
            if type(getattr(owner, field.name)) is float:
                try:
                    replace(owner, **{field.name: math.nan})
                except ConfigError:
                    continue
                accepted.append(f"{where}{field.name}")
    assert accepted == []


OPTIONS = ("read", "read.id_column", "read.time_column", "read.source_column", "read.labels", "loop.epochs",
           "loop.optim.lr", "batch_size", "tokens.num_hops", "model.dim", "split.kind")  # fmt: skip
HINTS = {
    "read.time_colum": "read.time_column",  # a letter missing
    "read.time_colunm": "read.time_column",  # a wrong letter
    "read.tiem_colum": "read.time_column",  # two letters swapped
    "loop.epochss": "loop.epochs",  # a letter too many
    "Loop.Epochs": "loop.epochs",
    "read.timecolumn": "read.time_column",  # underscores and dots
    "batchsize": "batch_size",
    "lr": "loop.optim.lr",  # the group is missing
    "tokens.hops": "tokens.num_hops",
    "read.src_column": "read.source_column",  # short for it
    "loop.ep": None,
    "read.node_column": None,  # only its beginning and its end are similar
    "read.colour": None,
    "k": None,
    "": None,
    "?": None,
}


def test_a_hint_corrects_typos_and_nothing_more_distant() -> None:
    assert {typed: closest(typed, OPTIONS) for typed in HINTS} == HINTS


def test_a_hint_names_the_nearest_option_and_skips_long_names() -> None:
    assert closest("user 17", ["user 18", "user 71", "user 17b"]) == "user 17b"
    assert closest("item_1", ["item_17", "item1", "items"]) == "item1"
    assert closest("history", ["random", "historical"]) == "historical"
    assert closest("training", ["train", "val"]) == "train"
    assert nearest("a" * 101, ["a" * 100]) == ""
    assert nearest("dim", []) == ""
