"""The card of a saved model: Markdown under a head that the hub reads (https://huggingface.co/docs/hub/model-cards)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hopstate.evaluation.metrics import of_class
from hopstate.methods import method_of_run
from hopstate.methods.method import Method
from hopstate.runs.data import known_data
from hopstate.runs.queries.card import target_lines
from hopstate.training.kept_curves import kept_curves
from hopstate.training.run_folder import RunFolder, flatten

_ENDS = ("_low", "_high")


def model_card(saved: RunFolder, *, ids: bool) -> str:
    """Return the card of a saved model.

    Args:
        saved: the folder, with all but the card in it.
        ids: whether ids of nodes go with it.
    """
    settings = saved.settings()
    method = method_of_run(settings.get("method"), str(saved.path / "config.json"))
    result, known = saved.result(), known_data(saved)
    parts = [
        _head(method, settings, result, known),
        f"# {method.name} on {known.get('name', settings.get('data'))}\n\n"
        f"{method.summary[:1].upper()}{method.summary[1:]} ({method.source}). Trained with "
        f"[hopstate](https://github.com/hopstate/hopstate); weights are safetensors, all else is JSON.",
        "## Data\n\n" + "\n".join(f"- {line}" for line in _data(settings, known, ids=ids)),
        "## Protocol\n\n" + "\n".join(f"- {line}" for line in _protocol(settings, result)),
        "## Figures\n\n" + _figures(result, saved.floors(), kept_curves(saved).get("intervals", {})),
        "## Asking it\n\n" + _asking(method, settings),
        "## Limits\n\n" + "\n".join(f"- {line}" for line in _limits(method, settings, result)),
        "## Settings\n\n```json\n" + json.dumps(settings, indent=1) + "\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _head(method: Method, settings: Mapping[str, Any], result: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """Return the head; JSON in one line is YAML, whatever texts hold."""
    task = str(settings.get("task") or ("link" if method.data == "events" else "node"))
    test = result["metrics"].get("test", {})
    figures = [{"type": name, "value": value} for name, value in test.items() if value is not None]
    data = {"name": str(known.get("name")), "type": str(known.get("name"))}
    results = [{"task": {"type": "graph-ml", "name": task}, "dataset": data, "metrics": figures}]
    head: dict[str, Any] = {
        "library_name": "hopstate",
        "pipeline_tag": "graph-ml",
        "tags": ["hopstate", method.name, task],
        "model-index": [{"name": method.name, "results": results}],
    }
    return "---\n" + "\n".join(f"{key}: {json.dumps(value)}" for key, value in head.items()) + "\n---"


def _data(settings: Mapping[str, Any], known: Mapping[str, Any], *, ids: bool) -> list[str]:
    lines = [f"`{settings.get('data')}`: {known.get('num_nodes', 0):,} nodes; contents `{known['content_hash'][:16]}`"]
    dims = {key: value for key, value in (known.get("feature_dims") or {}).items() if value}
    if dims:
        lines.append("features: " + ", ".join(f"{key} {value}" for key, value in dims.items()))
    if known.get("time_unit"):
        lines.append(f"times in {known['time_unit']}")
    lines += [" ".join(line.split()) for line in target_lines(known, settings)]
    return [*lines, "the data themselves are not here" + ("; the ids of the nodes are" if ids else "")]


def _protocol(settings: Mapping[str, Any], result: Mapping[str, Any]) -> list[str]:
    lines = []
    for group in ("split", "evaluation"):
        own = settings.get(group)
        if isinstance(own, Mapping):
            lines.append(f"{group}: " + ", ".join(f"{k} {_plain(v)}" for k, v in flatten(own).items() if v is not None))
    lines.append(
        f"seed {settings['loop'].get('seed')}; epoch {result['best_epoch']} chosen on validation by {result['metric']}"
    )
    mode = (settings.get("evaluation") or {}).get("protocol", "pooled")
    return [*lines, "metrics are pooled over a split, never averaged per batch"] if mode == "pooled" else lines


def _figures(
    result: Mapping[str, Any], floors: Mapping[str, Mapping[str, Any]], limits: Mapping[str, Sequence[float]]
) -> str:
    columns: dict[str, dict[str, Any]] = {split: dict(own) for split, own in result["metrics"].items() if own}
    for name, ends in limits.items():
        columns.get("test", {}).update({f"{name}{end}": value for end, value in zip(_ENDS, ends, strict=True)})
    columns |= {f"{name} (floor, test)": dict(own) for name, own in floors.items()}
    names = dict.fromkeys(name for own in columns.values() for name in own if not name.endswith(_ENDS))
    lines = ["| | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    positive = result.get("positive_class")
    lines += [
        f"| {of_class(name, positive)} | " + " | ".join(_cell(own, name) for own in columns.values()) + " |"
        for name in names
    ]
    test, chosen = result["metrics"].get("test", {}), result["metric"]
    sign = -1 if result.get("mode") == "min" else 1
    above = {
        name: sign * test[chosen] > sign * own[chosen]
        for name, own in floors.items()
        if test.get(chosen) is not None and own.get(chosen) is not None
    }
    below = [name for name, it_is in above.items() if not it_is]
    if above:
        lines += ["", f"**Not above {' and '.join(below)}** by {chosen} on the test split." if below else
                  f"Above every floor by {chosen} on the test split: {', '.join(above)}."]  # fmt: skip
    if not any(name.endswith("_low") for own in columns.values() for name in own):
        lines += ["", "No intervals were asked for (`evaluation.bootstrap`); one seed says nothing of the spread."]
    else:
        lines += ["", "In brackets: 95% limits by drawing the test rows again; one seed says nothing of the spread."]
    return "\n".join(lines)


def _cell(own: Mapping[str, Any], name: str) -> str:
    value, low, high = (own.get(key) for key in (name, *(name + end for end in _ENDS)))
    if value is None:
        return ""
    if isinstance(value, int):  # a count
        return f"{value:,}"
    return f"{value:.4f}" + (f" [{low:.4f}, {high:.4f}]" if low is not None and high is not None else "")


def _asking(method: Method, settings: Mapping[str, Any]) -> str:
    past = method.data == "events" and "evaluation" in settings
    own = f', data="{settings.get("data")}"' if past or settings.get("task") == "link" else ""
    lines = ["import hopstate", f'run = hopstate.from_pretrained("OWNER/NAME"{own})  # or a folder']
    lines.append('run.rank("NODE", top=10)' if own else 'run.predict("other-data.csv")')
    return "```python\n" + "\n".join(lines) + "\n```"


def _limits(method: Method, settings: Mapping[str, Any], result: Mapping[str, Any]) -> list[str]:
    lines = ["judged on one data set: what it does elsewhere is unknown"]
    if method.data == "events":
        lines.append("scores stand on the past: they need the run's own events, which are not here")
        lines.append("the further an event lies behind the last of training, the less the figures say of it")
    if method.data == "graph":
        lines.append("nodes that the graph did not have are told by `predict` on the grown graph")
    if "test" not in result["metrics"]:
        lines.append("there was no test split: no figure here is an honest estimate")
    return [*lines, "probabilities are calibrated on validation alone"] if settings.get("task") == "link" else lines


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


__all__ = ["model_card"]
