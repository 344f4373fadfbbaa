"""Writing a run as a folder that travels, and making a run from one again."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hopstate.errors import CheckpointError, ConfigError
from hopstate.evaluation.metrics import of_class
from hopstate.io.files import NAME as LOCK
from hopstate.io.files import locked, make_folder, replace_files, save_array
from hopstate.io.opening import exists, shown
from hopstate.io.tensors import Archive, fill_tensor_file, load_npy, read_tensors
from hopstate.methods import method_of_run
from hopstate.methods.method import Method
from hopstate.methods.shared.node import save_npz
from hopstate.runs.card import target_lines
from hopstate.runs.data import known_data
from hopstate.runs.load import IDS_FILE, SPLIT_FILE
from hopstate.training.checkpoint import load_checkpoint
from hopstate.training.run_folder import CURVES, RUN_FORMAT, RunFolder, flatten, json_text, kept_curves

__all__ = ["check_saved", "save_pretrained", "unpack"]

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


FORMAT = "hopstate-pretrained-1"
HEAD, ARRAYS, WEIGHTS = "hopstate.json", "arrays.safetensors", "model.safetensors"
NEEDED = ("config.json", "data.json", "result.json", WEIGHTS)
TEXTS = ("config.json", "data.json", "result.json", "floors.json", "environment.json", CURVES)
_ARRAY = re.compile(
    rf"{re.escape(IDS_FILE)}|{re.escape(SPLIT_FILE)}|negatives/\w+\.npz"
)  # the files that arrays come from
_PLACE = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?[/\\](?:[^/\\:\n]+[/\\])*")  # folders before a file's name, in a text
_AGAIN = "fetch it again, or save it again where it was trained"


# ---- out ------------------------------------------------------------------------------------------------------------
def save_pretrained(run: str | Path, folder: str | Path, *, ids: bool = True) -> Path:
    """Write a finished run as a folder that can be given to others: safetensors, JSON and a card.

    Neither data nor paths of this machine go with it; a run whose answers stand on the past of its own data, as those
    of `score` and `rank`, needs these beside it (data= of `hopstate.from_pretrained`).

    Args:
        run: the run folder.
        folder: a new or empty one, or one that was written so before, which is replaced.
        ids: whether the ids of a graph's nodes go with it, which `predict` on a grown graph needs.

    Returns:
        The folder.

    Raises:
        CheckpointError, MissingFileError: no finished run is there, or it is damaged.
        ConfigError: the folder holds something else.
        StorageError: it could not be written.
    """
    own, folder = RunFolder.open(run), Path(folder)
    if not exists(own.path / "result.json"):
        raise CheckpointError(f"{run} was not finished; continue it with resume (--resume --out {run})")
    settings = _without_paths(own.settings())
    texts: dict[str, Any] = {name: _without_paths(own.read_json(name)) for name in TEXTS if exists(own.path / name)}
    texts["config.json"] = {"format": RUN_FORMAT, **settings}
    texts.get("environment.json", {}).pop("command", None)
    load_checkpoint(own.weights)  # a damaged one goes nowhere
    tensors, record = _arrays(own.path, ids=ids)
    _check_free(folder)
    with locked(folder, "a saved model"):
        writes: dict[str, Callable[[Path], object]] = {
            name: partial(Path.write_bytes, data=json_text(value).encode()) for name, value in texts.items()
        }
        writes[WEIGHTS] = partial(shutil.copyfile, own.weights)
        if tensors or record:
            writes[ARRAYS] = partial(fill_tensor_file, tensors=tensors, record=record, format=FORMAT)
        replace_files({folder / name: write for name, write in writes.items()}, marker=folder / HEAD)
        head: dict[str, Any] = {"format": FORMAT, "method": settings["method"]}
        head["sha256"] = {name: _sum(folder / name) for name in sorted(writes)}
        card = model_card(RunFolder(folder), ids=IDS_FILE in {key.partition("|")[0] for key in (*tensors, *record)})
        replace_files({
            folder / "README.md": partial(Path.write_bytes, data=card.encode()),
            folder / HEAD: partial(Path.write_bytes, data=json_text(head).encode()),
        })  # fmt: skip
    (folder / LOCK).unlink(missing_ok=True)
    return folder


def _without_paths(value: Any) -> Any:
    """Return settings or notes in which files are called by their names alone."""
    if isinstance(value, Mapping):
        return {key: _without_paths(own) for key, own in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_paths(own) for own in value]
    if not isinstance(value, str):
        return value
    if "://" in value:
        return value.partition("://")[2].partition("?")[0].rpartition("/")[2]  # neither host nor password
    return Path(value).name if Path(value).is_absolute() and "\n" not in value else _PLACE.sub("", value)


def _arrays(run: Path, *, ids: bool) -> tuple[dict[str, torch.Tensor], dict[str, list[str]]]:
    found: dict[str, np.ndarray] = {}
    for file in sorted(path for pattern in (IDS_FILE, SPLIT_FILE, "negatives/*.npz") for path in run.glob(pattern)):
        name = file.relative_to(run).as_posix()
        if not _ARRAY.fullmatch(name) or (name == IDS_FILE and not ids):
            continue
        if file.suffix == ".npy":
            found[f"{name}|"] = load_npy(file)
            continue
        with Archive(file) as archive:
            found |= {f"{name}|{member}": array for member, array in archive.items()}
    texts = {key: array.tolist() for key, array in found.items() if array.dtype.kind == "U"}
    return {key: torch.from_numpy(array) for key, array in found.items() if key not in texts}, texts


def _check_free(folder: Path) -> None:
    """Raise ConfigError where a folder holds what is no saved model."""
    if exists(folder) and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; name a folder")
    there = {file.name for file in folder.iterdir()} - {LOCK} if folder.is_dir() else set()
    if there and HEAD not in there:
        raise ConfigError(f"{folder} is not empty and holds no saved model ({HEAD}); choose another folder")


# ---- in -------------------------------------------------------------------------------------------------------------
def unpack(folder: Path, path: Path, *, data: str | Path | None = None, read: Mapping[str, Any] | None = None) -> None:
    """Write a saved model as a run folder.

    Args:
        folder: the saved model, which `check_saved` has seen.
        path: the run folder, new or empty.
        data, read: the run's own data where they lie here, and settings of reading that differ.

    Raises:
        CheckpointError: its arrays are none of a run.
        ConfigError: the run folder is taken, or read names an unknown setting.
        StorageError: it could not be written.
    """
    files = check_saved(folder)
    settings = RunFolder(folder).settings()
    unknown = sorted(set(read or {}) - set(settings["read"]))
    if unknown:
        raise ConfigError(f"read has no {unknown[0]!r}; it has {', '.join(settings['read'])}")
    settings["read"] |= {key: _place(value) for key, value in (read or {}).items()}
    settings["data"] = settings["data"] if data is None else _place(data)
    writes: dict[Path, Callable[[Path], object]] = _array_writes(folder, path) if ARRAYS in files else {}
    writes[path / WEIGHTS] = partial(shutil.copyfile, folder / WEIGHTS)
    for name in reversed([name for name in TEXTS if name in files]):  # config.json last: it makes the folder a run
        value = {"format": RUN_FORMAT, **settings} if name == "config.json" else RunFolder(folder).read_json(name)
        writes[path / name] = partial(Path.write_bytes, data=json_text(value).encode())
    make_folder(path)
    with locked(path):
        _check_new(path, set(writes))
        replace_files(writes, marker=path / "config.json")


def check_saved(folder: Path) -> list[str]:
    """Return the names of the files of a saved model, each compared with its checksum.

    Raises:
        CheckpointError: it holds no saved model, or one that is damaged or of another version.
    """
    if not exists(folder / HEAD):
        raise CheckpointError(f"{folder} holds no saved model ({HEAD} is missing); save_pretrained writes one")
    head = RunFolder(folder).read_json(HEAD)
    if head.get("format") != FORMAT:
        raise CheckpointError(f"{folder} has the format {shown(head.get('format'))}, {FORMAT} is read here; upgrade")
    sums = head.get("sha256")
    known = {*TEXTS, WEIGHTS, ARRAYS}
    if not isinstance(sums, dict) or not set(NEEDED) <= sums.keys() <= known:
        names = sums.keys() if isinstance(sums, dict) else set()
        wrong = sorted(names - known) or sorted(set(NEEDED) - names)
        raise CheckpointError(f"{folder / HEAD} lists {shown(wrong[0])} wrongly; {_AGAIN}")
    for name, told in sums.items():
        if not exists(folder / name):
            raise CheckpointError(f"{folder} lacks {name}; {_AGAIN}")
        if _sum(folder / name) != told:
            raise CheckpointError(f"{folder / name} is not what was saved; {_AGAIN}")
    saved = RunFolder(folder)
    method_of_run(saved.settings().get("method"), str(folder / "config.json"))
    saved.result(), saved.floors(), kept_curves(saved), known_data(saved), load_checkpoint(saved.weights)
    return list(sums)


def _array_writes(folder: Path, path: Path) -> dict[Path, Callable[[Path], object]]:
    tensors, texts = read_tensors(folder / ARRAYS, format=FORMAT, what="arrays of a saved model", mend=_AGAIN)
    files: dict[str, dict[str, np.ndarray]] = {}
    for key, array in {**tensors, **texts}.items():
        name, bar, member = key.partition("|")
        told = isinstance(array, torch.Tensor) or all(type(text) is str for text in array)
        if not bar or not _ARRAY.fullmatch(name) or not told:
            raise CheckpointError(f"{folder / ARRAYS} holds {shown(key)}, which no run has; {_AGAIN}")
        files.setdefault(name, {})[member] = (
            array.numpy() if isinstance(array, torch.Tensor) else np.array(array, dtype=str)
        )
    return {
        path / name: partial(save_array, array=own[""]) if name == IDS_FILE else partial(save_npz, rows=own)
        for name, own in files.items()
    }


def _check_new(path: Path, names: set[Path]) -> None:
    """Raise ConfigError where a folder holds anything but what a killed start of the same left."""
    there = {file for file in path.rglob("*") if file.is_file() and file.name != LOCK}
    if path / "config.json" in there or there - names:
        raise ConfigError(f"{path} is not empty; choose another out")


def _place(value: Any) -> Any:
    """Return a file by its whole path, everything else as it is."""
    text = str(value) if isinstance(value, Path) else value
    return str(Path(text).resolve()) if isinstance(text, str) and exists(text) else text


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
