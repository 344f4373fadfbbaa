"""Search spaces of `hopstate tune`: what each paper says it searched, and how a user writes another.

Source: NAGphormer App. D.2 (arXiv:2206.04910); GMN Table 6 (arXiv:2402.08678; its "#Layers" does not say of what:
blocks over tokens, over nodes and of message passing are searched apart); DyG-Mamba App. D.3 (sequence length);
DyGFormer and GraphMixer: DyGLib (arXiv:2303.13047), App. B.5; CTDG-SSM: the sizes of Table 9 and the batches of
Table 14; backbones: arXiv:2302.11640 (1 to 5 layers). Deviation: GMN's m, and one block over tokens or nodes beside the
stated 3 to 6; learning rate and dropout of the backbones, and the filter order of CTDG-SSM, are ours: no paper states a
space for them, and the space of pair-trees.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hopstate.errors import ConfigError, MissingFileError, nearest
from hopstate.io.opening import exists, read_text, shown
from hopstate.methods.method import Method
from hopstate.methods.settings import SETTINGS_BYTES, load_yaml, parser_of

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, whole ones where both ends are written without a point.

    Args:
        low, high: the ends, both included.
        log: draw the logarithm evenly.

    Raises:
        ConfigError: high under low, or log with an end that is not above 0.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low <= self.high or (self.log and self.low <= 0):
            raise ConfigError(f"a range is low:high, and above 0 with :log; got {self}")

    def __str__(self) -> str:
        return f"{self.low}:{self.high}{':log' if self.log else ''}"


Space = dict[str, "Range | list[Any]"]

_BACKBONE: Space = {
    "model.num_layers": Range(1, 5),
    "loop.optim.lr": Range(3e-5, 3e-2, log=True),
    "model.dropout": [0.0, 0.2, 0.5],
}
_NODE_DROPOUT = [0.1, 0.3, 0.5]
_DYGLIB_DROPOUT = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
_GMN: Space = {
    "walks.walks": [1, 2, 4, 8, 16, 32],
    "walks.repeats": [0, 1, 2, 4, 8, 16],
    "walks.max_length": [0, 1, 2, 4],
    "model.token_layers": [1, 3, 4, 6],
    "model.node_layers": [1, 3, 4, 6],
    "model.mpnn_layers": [3, 4, 6],
}
_LAYERS = ("model.token_layers", "model.node_layers", "model.mpnn_layers")
_DYG_MAMBA: Space = {"history.max_length": [32, 64, 128, 256, 512, 1024, 2048]}
_CTDG: Space = {
    "model.dim": [32, 128],
    "model.order": [1, 2],
    "model.static": ["none", "onehot", "random", "learnable"],
    "batch_size": [64, 128, 200],
}

# a key may name several settings joined by commas; its choices then hold as many values joined by commas
SPACES: dict[str, Space] = {
    "nagphormer": {
        "model.num_layers": Range(1, 5),
        "model.dim": [128, 256, 512],
        "tokens.num_hops": Range(2, 20),
        "loop.optim.lr": [1e-3, 5e-3, 1e-4],
        "loop.optim.weight_decay": [1e-4, 5e-4, 1e-5],
        "model.dropout": _NODE_DROPOUT,
    },
    "gmn": _GMN,
    "gmn-graphs": _GMN | {key: sorted({*_GMN[key], 5}) for key in _LAYERS},  # type: ignore[misc]  # 4, 5: LRGB
    "gin-graphs": {"loop.optim.lr": Range(1e-4, 1e-2, log=True)},
    **dict.fromkeys(("mlp", "gcn", "sage", "gin", "gat", "pna", "gcnii"), _BACKBONE),
    "dyg-mamba": _DYG_MAMBA,
    "dyg-mamba-nodes": _DYG_MAMBA,
    "dygformer": {
        "model.max_length,model.patch_size": ["32,1", "64,2", "128,4", "256,8", "512,16", "1024,32"],
        "model.dropout": _DYGLIB_DROPOUT,
    },
    "graphmixer": {"model.num_links": [10, 20, 30], "model.dropout": _DYGLIB_DROPOUT},
    "pair-trees": {
        "historical": [0.1, 0.2, 0.3],
        "model.max_leaves": [15, 31, 63],
        "model.min_leaf": [20, 100, 500],
        "model.learning_rate": Range(0.03, 0.15, log=True),
    },
    "edgebank": {
        "model.memory": ["unlimited", "window", "threshold"],
        "model.window": ["proportion", "repeat"],
    },
    "ctdg-ssm": _CTDG,
    "ctdg-ssm-nodes": {key: _CTDG[key] for key in ("model.dim", "model.order", "batch_size")},
    "ctdg-ssm-sequences": {"model.order": [1, 2, 3], "loop.optim.lr": Range(1e-4, 1e-2, log=True)},
}


def space_of(method: Method, given: Mapping[str, Any] | Iterable[str] = ()) -> Space:
    """Return the search space of a method as changed by what a user gives.

    Args:
        method: the method.
        given: a mapping that replaces the space; or texts in order: files (.yaml, .yml, .json) that replace the space,
            and "KEY=LOW:HIGH", "KEY=LOW:HIGH:log" or "KEY=A,B,C",
            which set one key of it; in order.

    Raises:
        ConfigError: no space is known, a key is no setting of the method, or a value is no range and no list.
        MissingFileError: a file that is not there.
    """
    space = dict(SPACES.get(method.name, {}))
    if isinstance(given, Mapping):
        space, given = {key: parse_values(key, values) for key, values in given.items()}, ()
    for text in given:
        key, sign, value = text.partition("=")
        if sign:
            space[key] = parse_values(key, value)
        else:
            space = _read(Path(text))
    if not space:
        raise ConfigError(
            f"no search space is known for {method.name}; give one, e.g. --space loop.optim.lr=1e-4:1e-2:log"
        )
    _check(space, method)
    return space


def parse_values(key: str, value: Any) -> Range | list[Any]:
    """Return the values of one key, from text or from what YAML holds.

    >>> parse_values("loop.optim.lr", "1e-4:1e-2:log")
    Range(low=0.0001, high=0.01, log=True)
    >>> parse_values("model.dim", "64, 128")
    [64, 128]
    """
    if isinstance(value, str):
        match = re.fullmatch(rf"\s*({NUMBER}):({NUMBER})(:log)?\s*", value)
        if match:
            return Range(_number(match[1]), _number(match[2]), bool(match[3]))
        value = [_scalar(part.strip()) for part in value.split(",")]
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if not values or not all(v is None or isinstance(v, (bool, int, float, str)) for v in values):
        raise ConfigError(f"the space of {key} must be LOW:HIGH, LOW:HIGH:log or a list of values; got {value!r}")
    return values


def suggest(trial: Any, space: Space) -> dict[str, Any]:
    """Return one value for each setting of a space, drawn by an Optuna trial.

    Args:
        trial: an `optuna.trial.Trial`.
        space: the space.
    """
    drawn: dict[str, Any] = {}
    for key, values in space.items():
        if not isinstance(values, Range):
            value = trial.suggest_categorical(key, values)
        elif isinstance(values.low, int) and isinstance(values.high, int):
            value = trial.suggest_int(key, values.low, values.high, log=values.log)
        else:
            value = trial.suggest_float(key, values.low, values.high, log=values.log)
        names = key.split(",")
        drawn |= dict(zip(names, [value] if len(names) == 1 else map(_scalar, str(value).split(",")), strict=True))
    return drawn


def printable(space: Space) -> dict[str, Any]:
    """Return a space as plain values that YAML and JSON hold, and that `parse_values` takes back."""
    return {key: str(values) if isinstance(values, Range) else values for key, values in space.items()}


def _read(path: Path) -> Space:
    if not exists(path):
        raise MissingFileError(f"no file {shown(path)}; --space takes a YAML file, or KEY=LOW:HIGH, or KEY=A,B,C")
    try:
        tree = load_yaml(read_text(path, most=SETTINGS_BYTES))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is no YAML: {error}") from error
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{path} must hold keys with their values, e.g. loop.optim.lr: 1e-4:1e-2:log")
    return {str(key): parse_values(str(key), value) for key, value in tree.items()}


def _check(space: Space, method: Method) -> None:
    known = parser_of(method).keys()
    for key, values in space.items():
        names = key.split(",")
        for name in names:
            if name not in known:
                raise ConfigError(f"{method.name} has no setting {name!r} to search{nearest(name, known)}")
        if len(names) > 1 and (isinstance(values, Range) or any(str(v).count(",") != len(names) - 1 for v in values)):
            raise ConfigError(f"each value of {key} must hold {len(names)} values joined by commas; got {values}")


def _number(text: str) -> float:
    return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)


def _scalar(text: str) -> Any:
    if re.fullmatch(NUMBER, text):  # YAML takes 1e-4 for a text
        return _number(text)
    return {"true": True, "false": False, "null": None}.get(text, text)
