"""Ranges of settings: checked in one place, alike for every method, never passed by what is no number; and hints."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass, replace

import pytest

from hopstate.errors import ConfigError, check_range, closest, nearest
from hopstate.methods import MODULES, get_method
from hopstate.methods.settings import config_from

RANGES = [
    ({"least": 1}, [1, 2.5, math.inf, None], [0, 0.999, -math.inf], "must be at least 1"),
    ({"above": 0}, [1e-300, 3, None], [0, -1], "must be above 0"),
    ({"least": 0, "below": 1}, [0, 0.5], [1, -1e-9], "lies in [0, 1)"),
    ({"above": 0, "most": 1}, [1, 0.5], [0, 1.001], "lies in (0, 1]"),
    ({"least": 0, "most": 1}, [0, 1], [-1, 2], "lies in [0, 1]"),
]


@pytest.mark.parametrize(("ends", "inside", "outside", "told"), RANGES, ids=lambda x: x if isinstance(x, str) else "")
def test_a_range_takes_its_inside_and_names_what_is_not_there(ends, inside, outside, told):
    for value in inside:
        check_range("loop.", **ends, other=inside[0], width=value)
    for value in [*outside, math.nan]:
        with pytest.raises(ConfigError) as raised:
            check_range("loop.", **ends, other=inside[0], width=value)
        assert str(raised.value) == f"loop.width {told}; got {value}"


def owners(config: object, where: str = "") -> list[tuple[str, object]]:
    """The dataclasses that a configuration is made of, by dotted name."""
    inner = [(f"{where}{f.name}.", getattr(config, f.name)) for f in fields(config)]
    return [(where, config), *(pair for name, value in inner if is_dataclass(value) for pair in owners(value, name))]


@pytest.mark.parametrize("name", MODULES)
def test_no_setting_of_a_method_takes_what_is_no_number(name):
    method, taken = get_method(name), []
    for where, owner in owners(config_from(method, {"data": "x"})):
        for field in fields(owner):
            if type(getattr(owner, field.name)) is float:
                try:
                    replace(owner, **{field.name: math.nan})
                except ConfigError:
                    continue
                taken.append(f"{where}{field.name}")
    assert taken == []


OPTIONS = ("read", "read.id_column", "read.time_column", "read.source_column", "read.labels", "loop.epochs",
           "loop.optim.lr", "batch_size", "tokens.num_hops", "model.dim", "split.kind")  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("read.time_colum", "read.time_column"),  # a letter missing, one wrong, one too many, two swapped
        ("read.time_colunm", "read.time_column"),
        ("read.tiem_colum", "read.time_column"),
        ("raed.time_column", "read.time_column"),
        ("raed.labls", "read.labels"),
        ("loop.epcohs", "loop.epochs"),
        ("loop.epochss", "loop.epochs"),
        ("modle.dim", "model.dim"),
        ("Loop.Epochs", "loop.epochs"),
        ("read.timecolumn", "read.time_column"),  # underscores and dots
        ("readtime_column", "read.time_column"),
        ("batchsize", "batch_size"),
        ("epochs", "loop.epochs"),  # a group
        ("lr", "loop.optim.lr"),
        ("loop.lr", "loop.optim.lr"),
        ("tokens.hops", "tokens.num_hops"),
        ("read.src_column", "read.source_column"),  # short for it
        ("loop.ep", None),
        ("read.node_column", None),  # alike in its end alone, or in its beginning
        ("read.kind_colum", None),
        ("read.user_column", None),
        ("read.colour", None),
        ("loop.depth", None),
        ("k", None),
        ("", None),
        ("?", None),
    ],
)
def test_a_hint_knows_slips_of_the_hand_and_nothing_looser(typed, meant):
    assert closest(typed, OPTIONS) == meant


def test_a_hint_names_the_nearest_of_several_and_compares_no_long_ones():
    assert closest("user 17", ["user 18", "user 71", "user 17b"]) == "user 17b"
    assert closest("item_1", ["item_17", "item1", "items"]) == "item1"
    assert closest("history", ["random", "historical"]) == "historical"
    assert closest("training", ["train", "val"]) == "train"
    assert nearest("a" * 101, ["a" * 100]) == ""
    assert nearest("dim", []) == ""
