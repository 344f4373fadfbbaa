"""Files from their official addresses into the cache folder: checked, retried, never half written, never asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hopstate.errors import DownloadError
from hopstate.io.files import cache_folder

RETRIES = 3
TIMEOUT = 60.0  # seconds without an answer


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One file of a data set.

    Args:
        url: its official address.
        path: where it lies below the cache folder.
        sha256: of its content; None where nobody publishes one, the reader's own checks must do then.
    """

    url: str
    path: str
    sha256: str | None = None

    @property
    def local(self) -> Path:
        """Where the file lies, or would lie, on this machine."""
        return cache_folder() / self.path


def fetch(file: RemoteFile, *, retries: int = RETRIES) -> Path:
    """Return the local path of a file, downloaded first where it is not there or has another sha256.

    Raises:
        DownloadError: it could not be fetched or is not what it should be; the message says what to put where. An
            earlier file at that place is untouched.
    """
    import pooch
    import requests

    local = file.local
    if file.sha256 is None and local.is_file():
        return local
    pooch.get_logger().setLevel("WARNING")
    keeper = pooch.create(
        path=local.parent,
        base_url="",
        registry={local.name: None if file.sha256 is None else f"sha256:{file.sha256}"},
        urls={local.name: file.url},
        retry_if_failed=retries,
    )
    try:
        keeper.fetch(local.name, downloader=pooch.HTTPDownloader(timeout=TIMEOUT))
    except (OSError, ValueError, requests.RequestException) as error:
        there = " (the file now there has another checksum)" if local.is_file() else ""
        raise DownloadError(
            f"could not fetch {file.url}: {_reason(error)}. Fetch it by hand and put it at {local}{there}, or name "
            f"another cache folder with the environment variable HOPSTATE_DATA"
        ) from error
    return local


def _reason(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__
