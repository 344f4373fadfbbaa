"""TGB's archives of link data sets: the CSV of events inside; the pickled negatives beside it are never opened.

Source: Huang et al. 2023, arXiv:2307.01026; the layouts that py-tgb 2.3.0 reads.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from hopstate.data.events import EventStream
from hopstate.data.readers import dyglib, event_tables
from hopstate.errors import ConfigError, FormatError
from hopstate.io.opening import Bounded, check_regular, check_size

JODIE = ("tgbl-wiki", "tgbl-subreddit", "tgbl-lastfm", "tgbl-enron", "tgbl-uci")  # users, items, time, label, features
EDGES = re.compile(r"(?P<name>tgbl-\w+)_edgelist(_v\d+)?\.csv")


def read_tgb_zip(path: Path, **fields: Any) -> EventStream:
    """Return the events of an archive such as tgbl-wiki-v2.zip, times in seconds.

    Weights of events (tgbl-coin) are no features, as TGB has it; edge_columns=weight takes them.

    Args:
        path: the archive.
        fields: of `EventStream`, and options of `read_event_table` where the events are a plain table.

    Raises:
        FormatError: no archive, a damaged one, or one without TGB's CSV of events.
        ConfigError: an option that JODIE's layout has no use for.
    """
    with tempfile.TemporaryDirectory(prefix="hopstate-") as folder:
        csv, name = _unpacked(path, Path(folder))
        fields = {"name": name, "source": str(path), "time_unit": "s", **fields}
        if name in JODIE:
            unused = [key for key in fields if key.endswith(("_column", "_columns")) or key.startswith("missing")]
            if unused:
                raise ConfigError(f"{path} has its columns in JODIE's order and does not take {', '.join(unused)}")
            return dyglib.read_jodie(csv, **fields)
        return event_tables.read_event_table(csv, **{"edge_columns": (), **fields})


def _unpacked(path: Path, folder: Path) -> tuple[Path, str]:
    """Return the CSV of events, copied into a folder under a name of ours, and the data set's name."""
    check_regular(path)
    try:
        with zipfile.ZipFile(path) as archive:
            found = [(e, m) for e in archive.namelist() if (m := EDGES.fullmatch(e.rpartition("/")[2]))]
            if len(found) != 1:
                raise FormatError(
                    f"{path} holds {len(found)} files called tgbl-NAME_edgelist.csv or tgbl-NAME_edgelist_v2.csv, "
                    "where TGB's archives of links have one"
                )
            entry, match = found[0]
            target = folder / "events.csv"
            member = archive.getinfo(entry)
            check_size(path, member.file_size, stored=member.compress_size)
            with archive.open(entry) as source, target.open("wb") as file:
                shutil.copyfileobj(Bounded(source, path), file, 1 << 20)
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise FormatError(f"{path} is no zip archive, or a damaged one: {error}") from None
    return target, match["name"]
