"""Where downloads and dear results are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder named by HOPSTATE_DATA, else the platform's cache folder for hopstate; may not exist yet."""
    named = os.environ.get("HOPSTATE_DATA")
    if named:
        return Path(named).expanduser()
    import pooch

    return Path(pooch.os_cache("hopstate"))
