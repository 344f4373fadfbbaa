"""Settings and metrics under their former names: what earlier run folders, files and command lines hold is read on."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Container, Mapping, Sequence
from itertools import islice
from typing import Any

from hopstate.errors import ConfigError, HopstateWarning

# former name → today's
RENAMED = {
    "batching.histories": "batching.gas_cache",
    "batching.num_parts": "batching.num_clusters",
    "batching.parts_per_batch": "batching.clusters_per_batch",
    "loop.products": "loop.matmul_precision",
    "pairs_at_once": "microbatch_size",
    "truncate": "tbptt_window",
}
METRICS = {"ap": "average_precision", "auc": "roc_auc"}
VALUES = {"metric": METRICS, "batching.nodes": {"parts": "clusters"}}  # setting → former value → today's
_METRIC = re.compile(r"((?:train_|val_)?(?:new_)?(?:historical_|inductive_)?(?:mean_)?)(ap|auc)((?:_low|_high)?)")


def todays_metric(name: str) -> str:
    """Return the name of a metric of links or events, or of a column of metric rows, as it is today.

    >>> todays_metric("val_new_historical_ap")
    'val_new_historical_average_precision'
    """
    found = _METRIC.fullmatch(name)
    return name if found is None else f"{found[1]}{METRICS[found[2]]}{found[3]}"


def todays_metrics(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by metric, or a metric row, under today's names."""
    return {todays_metric(name): value for name, value in values.items()}


def former_values(settings: Mapping[str, Any], known: Container[str] | None = None) -> dict[str, str]:
    """Return setting → today's name of its value, of the settings whose value has another today.

    Args:
        settings: nested, or by dotted name.
        known: names that are settings; None where the table alone decides.
    """
    keys = [key for key in VALUES if _holds(settings, key) and (known is None or key in known)]
    found = {key: _value(settings, key) for key in keys}
    return {key: VALUES[key][value] for key, value in found.items() if isinstance(value, str) and value in VALUES[key]}


def former_names(settings: Mapping[str, Any], known: Container[str] | None = None) -> dict[str, str]:
    """Return former name → today's of the settings that have one.

    Args:
        settings: nested, or by dotted name.
        known: names that are settings today, whatever they were; None where the table alone decides.
    """
    found = {old: new for old, new in RENAMED.items() if _holds(settings, old)}
    return found if known is None else {o: n for o, n in found.items() if o not in known and n in known}


def with_todays_names(
    settings: Mapping[str, Any], where: str, known: Container[str] | None = None, *, values: bool = True
) -> dict[str, Any]:
    """Return settings, and their values, by today's names; a warning names those that were others.

    Args:
        settings: nested, or by dotted name.
        where: they come from, for messages.
        known: as in `former_names`.
        values: whether values have the library's names.

    Raises:
        ConfigError: a setting is given by both of its names.
    """
    names, others = former_names(settings, known), former_values(settings, known) if values else {}
    made = json.loads(json.dumps(dict(settings))) if names or others else dict(settings)
    for old, new in names.items():
        if _holds(made, new):
            raise ConfigError(f"{where} gives {new} and, by its former name, {old}; leave {old} out")
        _put(made, new, _take(made, old))
    warn_of(names | {f"{key} {_value(settings, key)}": new for key, new in others.items()}, where)
    for key, new in others.items():
        _put(made, key, new)
    return made


def todays_words(
    words: Sequence[str],
    known: Container[str],
    *,
    names: Mapping[str, str] = RENAMED,
    values: Mapping[str, Mapping[str, str]] = VALUES,
) -> tuple[list[str], dict[str, str]]:
    """Return words of a command line by today's names, and former name → today's of those that had another.

    Args:
        words: --name value, or --name=value, among others.
        known: names that are options today.
        names: former name → today's.
        values: option → former value → today's.
    """
    made: list[str] = []
    former: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        name, sign, value = word.removeprefix("--").partition("=")
        today = names.get(name)
        if word.startswith("--") and today is not None and name not in known and today in known:
            former[name] = today
            made.append(f"--{today}{sign}{value}")
        elif word.startswith("--") and name in values and name in known:
            given = [value] if sign else list(islice(rest, 1))
            former |= {f"{name} {v}": values[name][v] for v in given if v in values[name]}
            made += [f"--{name}={values[name].get(v, v)}" for v in given] or [word]
        else:
            made.append(word)
    return made, former


def warn_of(names: Mapping[str, str], where: str) -> None:
    """Warn of settings by their former names."""
    if names:
        told = ", ".join(f"{old} is called {new} now" for old, new in names.items())
        warnings.warn(f"{where}: {told}; the former name is still read", HopstateWarning, stacklevel=3)


def _place(settings: Mapping[str, Any], name: str) -> tuple[Any, str]:
    """Return the mapping in which a setting stands, or would stand, and its key there."""
    if name in settings or "." not in name:
        return settings, name
    group, _, rest = name.partition(".")
    inner = settings.get(group)
    return _place(inner, rest) if isinstance(inner, Mapping) else (settings, name)


def _holds(settings: Mapping[str, Any], name: str) -> bool:
    place, key = _place(settings, name)
    return key in place


def _value(settings: Mapping[str, Any], name: str) -> Any:
    place, key = _place(settings, name)
    return place[key]


def _take(settings: dict[str, Any], name: str) -> Any:
    place, key = _place(settings, name)
    return place.pop(key)


def _put(settings: dict[str, Any], name: str, value: Any) -> None:
    place, key = _place(settings, name)
    place[key] = value
