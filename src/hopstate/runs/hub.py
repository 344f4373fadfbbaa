"""A run again from a folder that travelled or from the hub of Hugging Face, and one to there (by huggingface_hub)."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from hopstate.errors import ConfigError, DownloadError, MissingExtraError, MissingFileError
from hopstate.io.opening import exists, shown
from hopstate.runs.pretrained.travel import check_saved, save_pretrained, unpack
from hopstate.runs.run import Run, new_folder, open_run
from hopstate.training.run_folder import RunFolder

FILES = ["*.json", "*.safetensors", "README.md"]  # all that is ever fetched or sent
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def fetched(source: str | Path, revision: str | None = None) -> Path:
    """Return the folder of a saved model: source itself, or what the hub has by that name.

    Args:
        source, revision: as in `from_pretrained`.

    Raises:
        MissingFileError: no folder, and no name of the hub.
        MissingExtraError: huggingface_hub is not installed.
        DownloadError: the hub did not give it.
    """
    if exists(source) and Path(source).is_dir():
        return Path(source)
    if isinstance(source, Path) or not _NAME.fullmatch(source):
        raise MissingFileError(f"no folder at {shown(source)}; the hub's names are OWNER/NAME")
    try:
        return Path(_hub().snapshot_download(source, revision=revision, allow_patterns=FILES))
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DownloadError(
            f"no folder {source} is here, and the hub does not give it ({reason}); fetch it by hand and name its folder"
        ) from None


def from_pretrained(
    source: str | Path,
    *,
    out: str | Path | None = None,
    data: str | Path | None = None,
    read: Mapping[str, Any] | None = None,
    revision: str | None = None,
) -> Run:
    """Make a run of a folder that `Run.save_pretrained` wrote, or of one on the hub.

    Args:
        source: the folder, or the hub's "owner/name".
        out: the run folder to make; by default a new one under runs/.
        data: the run's own data, where its questions need them: `score` and `rank` stand on the past.
        read: settings of reading that differ here, e.g. {"features": "features.csv"}.
        revision: a branch, tag or commit of the hub.

    Returns:
        The run, which answers as the one that was saved.

    Raises:
        MissingFileError, DownloadError, MissingExtraError: it cannot be had.
        CheckpointError: a file is missing, damaged or foreign; nothing is loaded from pickles.
        ConfigError: out is taken, or read names an unknown setting.
        StorageError: it could not be written.
    """
    folder = fetched(source, revision)
    check_saved(folder)
    path = Path(out) if out is not None else new_folder(RunFolder(folder).settings()["method"], folder.name)
    unpack(folder, path, data=data, read=read)
    return open_run(path)


def push_to_hub(run: str | Path, name: str, *, private: bool = True, ids: bool = False, **options: Any) -> str:
    """Save a finished run and upload it; return the address of the commit.

    Args:
        run: the run folder.
        name: the hub's "owner/name", which is made where it is not there.
        private: of a name that is made.
        ids: whether the ids of a graph's nodes go along; see `save_pretrained`.
        options: more of `huggingface_hub.HfApi.upload_folder`, e.g. commit_message.

    Raises:
        MissingExtraError: huggingface_hub is not installed.
        ConfigError: name is none of the hub's.
        DownloadError: the hub refused it, or cannot be reached.
        CheckpointError, MissingFileError: no finished run is there.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{shown(name)} is no name of the hub: OWNER/NAME")
    api = _hub().HfApi()
    with tempfile.TemporaryDirectory(prefix="hopstate-") as scratch:
        folder = save_pretrained(run, Path(scratch) / "model", ids=ids)
        try:
            api.create_repo(name, private=private, exist_ok=True)
            told = api.upload_folder(repo_id=name, folder_path=folder, allow_patterns=FILES, **options)
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DownloadError(f"the hub did not take {name} ({reason}); nothing of the run has changed") from None
    return str(told)


def _hub() -> ModuleType:
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtraError("the hub needs huggingface_hub: pip install 'hopstate[hub]'") from None
    return huggingface_hub


__all__ = ["fetched", "from_pretrained", "push_to_hub"]
