"""A trained run as a folder for others, a run of such a folder again, and both by the hub of Hugging Face.

The folder holds weights as safetensors, JSON files, the NumPy arrays of a run (its splits, the negatives of its
evaluation, the ids of its nodes), `hopstate.json` with a SHA-256 of each, and a card, README.md. It holds no data, no
state of streamed events, and no path or command line of the machine that trained it. Nothing is read by unpickling.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from hopstate.errors import CheckpointError, ConfigError, DownloadError, MissingExtraError, MissingFileError
from hopstate.evaluation.metrics import label_with_class
from hopstate.io.files import NAME as LOCK
from hopstate.io.files import locked, replace_files
from hopstate.io.opening import exists, shorten
from hopstate.methods import method_of_run
from hopstate.methods.shared.baselines import baselines_not_beaten
from hopstate.runs.card import target_lines
from hopstate.runs.load import IDS_FILE, SPLIT_FILE
from hopstate.runs.run import Run, load, output_folder
from hopstate.runs.saved_run import SavedRun
from hopstate.training.checkpoint import load_checkpoint
from hopstate.training.run_folder import CURVES, RUN_FORMAT, RunFolder, flatten, json_text, load_curves

FORMAT = "hopstate-pretrained-2"
HEAD, WEIGHTS = "hopstate.json", "model.safetensors"
TEXTS = ("config.json", "data.json", "result.json", "baselines.json", "environment.json", CURVES)
NEEDED = {"config.json", "data.json", "result.json", WEIGHTS}
FILES = ["*.json", "*.safetensors", "*.npy", "*.npz", "README.md"]  # all that is ever fetched or sent
_ALLOWED = re.compile("|".join([*map(re.escape, (*TEXTS, WEIGHTS, IDS_FILE, SPLIT_FILE)), r"negatives/\w+\.npz"]))
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_FOLDERS = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?[/\\](?:[^/\\:\n]+[/\\])*")  # before a file's name, in a text
_AGAIN = "fetch it again, or save it again where it was trained"


def save_pretrained(run: str | Path, folder: str | Path, *, ids: bool = True) -> Path:
    """Write a finished run as a folder to share, without its data, and return the folder.

    `score` and `rank` depend on the event history. They need the data again (data= of `hopstate.from_pretrained`).

    Args:
        run: the run folder.
        folder: a new or empty folder, or one of an earlier call, which is replaced.
        ids: whether to store the ids of a graph's nodes, which `predict` on a grown graph needs.

    Raises:
        CheckpointError, MissingFileError: the run does not exist, is not finished or is damaged.
        ConfigError: the folder has other files.
        StorageError: the folder could not be written.
    """
    source, folder = RunFolder.open(run), Path(folder)
    if not exists(source.path / "result.json"):
        raise CheckpointError(f"{run} was not finished; continue it with resume (--resume --out {run})")
    load_checkpoint(source.weights)  # a damaged one goes nowhere
    if exists(folder) and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; name a folder")
    if folder.is_dir() and not exists(folder / HEAD) and any(file.name != LOCK for file in folder.iterdir()):
        raise ConfigError(f"{folder} is not empty and holds no saved model ({HEAD}); choose another folder")
    texts = {name: _without_paths(source.read_json(name)) for name in TEXTS if exists(source.path / name)}
    texts["config.json"] = {"format": RUN_FORMAT, **_without_paths(source.settings())}
    texts.get("environment.json", {}).pop("command", None)
    writes: dict[str, Any] = {name: _writer(json_text(value)) for name, value in texts.items()}
    arrays = [path.relative_to(source.path).as_posix() for path in source.path.rglob("*.np[yz]")]
    copied = [name for name in arrays if _ALLOWED.fullmatch(name) and (ids or name != IDS_FILE)]
    writes |= {name: partial(shutil.copyfile, source.path / name) for name in copied}
    writes[WEIGHTS] = partial(shutil.copyfile, source.weights)
    with locked(folder, "a saved model"):
        replace_files({folder / name: write for name, write in writes.items()}, marker=folder / HEAD)
        head = {"format": FORMAT, "method": texts["config.json"]["method"]}
        head["sha256"] = {name: _sha256(folder / name) for name in sorted(writes)}
        card = model_card(SavedRun(folder), ids=IDS_FILE in writes)
        replace_files({folder / "README.md": _writer(card), folder / HEAD: _writer(json_text(head))})
    (folder / LOCK).unlink(missing_ok=True)
    return folder


def _writer(text: str) -> partial[int]:
    return partial(Path.write_bytes, data=text.encode())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _without_paths(value: Any) -> Any:
    """Return settings or notes in which files are called by their names alone."""
    if isinstance(value, Mapping):
        return {key: _without_paths(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_paths(part) for part in value]
    if not isinstance(value, str):
        return value
    if "://" in value:
        return value.partition("://")[2].partition("?")[0].rpartition("/")[2]  # neither host nor password
    return Path(value).name if Path(value).is_absolute() and "\n" not in value else _FOLDERS.sub("", value)


def from_pretrained(
    source: str | Path,
    *,
    out: str | Path | None = None,
    data: str | Path | None = None,
    read: Mapping[str, Any] | None = None,
    revision: str | None = None,
) -> Run:
    """Load a run from a folder that `Run.save_pretrained` wrote, or from the Hugging Face Hub.

    Args:
        source: the folder, or "owner/name" on the hub.
        out: the new run folder. Default: a new folder under runs/.
        data: the run's own data. `score` and `rank` need them, because scores depend on the event history.
        read: reading options that differ here, e.g. {"features": "features.csv"}.
        revision: a branch, tag or commit on the hub.

    Returns:
        The run. Its predictions are bit-identical to those of the saved run.

    Raises:
        MissingFileError, DownloadError, MissingExtraError: the source cannot be read.
        CheckpointError: a file is missing, damaged or of another kind. Nothing is unpickled.
        ConfigError: out exists, or read has an unknown setting.
        StorageError: the folder could not be written.

    Example:
        >>> folder = run.save_pretrained("saved")
        >>> hopstate.from_pretrained(folder, out="again").method
        'recency'
    """
    folder = fetched(source, revision)
    files = check_saved(folder)
    settings = RunFolder(folder).settings()
    unknown = sorted(set(read or {}) - set(settings["read"]))
    if unknown:
        raise ConfigError(f"read has no {unknown[0]!r}; it has {', '.join(settings['read'])}")
    settings["read"] |= {key: _absolute(value) for key, value in (read or {}).items()}
    settings["data"] = settings["data"] if data is None else _absolute(data)
    with output_folder(out, settings["method"], folder.name) as path, locked(path):
        if any(file.name != LOCK for file in path.iterdir()):
            raise ConfigError(f"{path} is not empty; choose another out")
        writes: dict[Path, Any] = {path / name: partial(shutil.copyfile, folder / name) for name in files}
        del writes[path / "config.json"]  # last: it makes the folder a run
        writes[path / "config.json"] = _writer(
            json_text({"format": RUN_FORMAT, "folder": str(path.resolve()), **settings})
        )
        replace_files(writes, marker=path / "config.json")
    return load(path)


def _absolute(value: Any) -> Any:
    """Return a file by its whole path, everything else as it is."""
    text = str(value) if isinstance(value, Path) else value
    return str(Path(text).resolve()) if isinstance(text, str) and exists(text) else text


def check_saved(folder: Path) -> list[str]:
    """Return the names of the files of a saved model, each compared with its checksum."""
    if not exists(folder / HEAD):
        raise CheckpointError(f"{folder} holds no saved model ({HEAD} is missing); save_pretrained writes one")
    head = RunFolder(folder).read_json(HEAD)
    if head.get("format") != FORMAT:
        raise CheckpointError(f"{folder} has the format {shorten(head.get('format'))}, {FORMAT} is read here; upgrade")
    sums = head.get("sha256")
    names = set(sums) if isinstance(sums, dict) else set()
    wrong = sorted(name for name in names if not _ALLOWED.fullmatch(name)) or sorted(NEEDED - names)
    if wrong:
        raise CheckpointError(f"{folder / HEAD} lists {shorten(wrong[0])} wrongly; {_AGAIN}")
    for name in names:
        if not exists(folder / name):
            raise CheckpointError(f"{folder} lacks {name}; {_AGAIN}")
        if _sha256(folder / name) != sums[name]:
            raise CheckpointError(f"{folder / name} is not what was saved; {_AGAIN}")
    saved = SavedRun(folder)
    method_of_run(saved.settings().get("method"), str(folder / "config.json"))
    saved.result(), saved.baselines(), load_curves(saved), saved.facts, load_checkpoint(saved.weights)
    return sorted(names)


# ---- the hub -------------------------------------------------------------------------------------------------------
def fetched(source: str | Path, revision: str | None = None) -> Path:
    """Return the folder of a saved model: source itself, or what the hub has by that name."""
    if exists(source) and Path(source).is_dir():
        return Path(source)
    if isinstance(source, Path) or not _HUB_NAME.fullmatch(source):
        raise MissingFileError(f"no folder at {shorten(source)}; the hub's names are OWNER/NAME")
    try:
        return Path(_hub().snapshot_download(source, revision=revision, allow_patterns=FILES))
    except (OSError, ValueError) as error:
        raise DownloadError(
            f"no folder {source} is here, and the hub does not give it ({_reason(error)}); fetch it by hand and name "
            f"its folder"
        ) from None


def push_to_hub(run: str | Path, name: str, *, private: bool = True, ids: bool = False, **options: Any) -> str:
    """Save a finished run and upload it; return the address of the commit.

    Args:
        run: the run folder.
        name: "owner/name" on the hub. A new repository is created if it does not exist.
        private: whether a new repository is private. Default: True.
        ids: whether to upload the ids of a graph's nodes; see `save_pretrained`.
        options: further arguments of `huggingface_hub.HfApi.upload_folder`, e.g. commit_message.

    Raises:
        MissingExtraError: huggingface_hub is not installed.
        ConfigError: name is not a valid name on the hub.
        DownloadError: the hub refuses the upload, or cannot be reached.
        CheckpointError, MissingFileError: there is no finished run.

    Example:
        >>> hopstate.push_to_hub(run.path, "owner/name")  # doctest: +SKIP
        'https://huggingface.co/owner/name/commit/...'
    """
    if not _HUB_NAME.fullmatch(name):
        raise ConfigError(f"{shorten(name)} is not a name of the hub: OWNER/NAME")
    api = _hub().HfApi()
    with tempfile.TemporaryDirectory(prefix="hopstate-") as scratch:
        folder = save_pretrained(run, Path(scratch) / "model", ids=ids)
        try:
            api.create_repo(name, private=private, exist_ok=True)
            return str(api.upload_folder(repo_id=name, folder_path=folder, allow_patterns=FILES, **options))
        except (OSError, ValueError) as error:
            raise DownloadError(
                f"the hub did not take {name} ({_reason(error)}); nothing of the run has changed"
            ) from None


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _hub() -> ModuleType:
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtraError("the hub needs huggingface_hub: pip install 'hopstate[hub]'") from None
    return huggingface_hub


# ---- the card ------------------------------------------------------------------------------------------------------
def model_card(saved: SavedRun, *, ids: bool) -> str:
    """Return the card of a saved model, of a folder with all but the card; ids says whether ids of nodes go with it."""
    from jinja2 import Environment, StrictUndefined

    settings, result, known = saved.settings(), saved.result(), saved.facts
    method = method_of_run(settings.get("method"), str(saved.path / "config.json"))
    task = str(settings.get("task") or ("link" if method.data == "events" else "node"))
    name, test = str(known.get("name", settings.get("data"))), result["metrics"].get("test", {})
    metrics = [{"type": metric, "value": value} for metric, value in test.items() if value is not None]
    index = {"task": {"type": "graph-ml", "name": task}, "dataset": {"name": name, "type": name}, "metrics": metrics}
    baselines = saved.baselines()
    template = Path(__file__).with_name("model_card.md").read_text("utf-8")
    return Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True).from_string(
        template
    ).render(
        method=method,
        task=task,
        name=name,
        results=[{"name": method.name, "results": [index]}],
        settings=json.dumps(settings, indent=1),
        known=known,
        target=[" ".join(line.split()) for line in target_lines(known, settings)],
        ids=ids,
        protocol={group: flatten(settings.get(group) or {}) for group in ("split", "evaluation")},
        seed=settings["loop"].get("seed"),
        result=result,
        figures=_metric_rows(result, baselines, load_curves(saved).get("intervals", {})),
        baselines=[baseline for baseline, values in baselines.items() if values.get(result["metric"]) is not None],
        not_above=baselines_not_beaten(test, baselines, result["metric"], result.get("mode", "max")),
        needs_data=(method.data == "events" and "evaluation" in settings) or task == "link",
        source=settings.get("data"),
    )  # fmt: skip


def _metric_rows(
    result: Mapping[str, Any], baselines: Mapping[str, Mapping[str, Any]], intervals: Mapping[str, Sequence[float]]
) -> list[list[str]]:
    """Return rows of a table: column names, then one metric per row, with 95% limits if there are any."""
    columns: dict[str, dict[str, Any]] = {split: dict(values) for split, values in result["metrics"].items() if values}
    for metric, (low, high) in intervals.items():
        columns.get("test", {}).update({f"{metric}_low": low, f"{metric}_high": high})
    columns |= {f"{name} (baseline, test)": dict(values) for name, values in baselines.items()}
    metrics = dict.fromkeys(m for values in columns.values() for m in values if not m.endswith(("_low", "_high")))
    labels = {metric: label_with_class(metric, result.get("positive_class")) for metric in metrics}
    return [["", *columns], *([labels[m], *(_cell(values, m) for values in columns.values())] for m in metrics)]


def _cell(values: Mapping[str, Any], metric: str) -> str:
    value, low, high = (values.get(f"{metric}{end}") for end in ("", "_low", "_high"))
    if value is None or isinstance(value, int):  # a count
        return "" if value is None else f"{value:,}"
    return f"{value:.4f}" + (f" [{low:.4f}, {high:.4f}]" if low is not None and high is not None else "")
