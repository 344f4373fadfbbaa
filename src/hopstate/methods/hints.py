"""What a complaint about an option that is none suggests."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hopstate.errors import nearest


def hint(message: str, known: Sequence[str]) -> str:
    """Return what follows a parser's complaint: the nearest of the known options, or where all are listed.

    Args:
        message: the complaint; nothing follows one that names no unknown option.
        known: dotted names of options.
    """
    unknown = re.search(r"nrecognized arguments: --([\w.]+)", message)
    inside = re.search(r"Group '([\w.]+)' does not accept option '([\w.]+)'", message)
    if not unknown and not inside:
        return ""
    name = unknown[1] if unknown else f"{inside[1]}.{inside[2]}" if inside else ""
    if name == "metric" and "evaluation.choose" in known:
        return (
            "; links are judged by all of their metrics, and validation chooses by average precision (MRR where "
            "evaluation.strategies begins with many): --evaluation.choose says over which pairs"
        )
    if name == "task":
        return "; a method has one task, and the others stand under names of their own: hopstate fit --help lists them"
    last = {key.rsplit(".", 1)[-1]: key for key in known}
    return nearest(name, known) or nearest(name.rsplit(".", 1)[-1], last) or "; --help lists all options"
