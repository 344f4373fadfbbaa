"""Sizes in bytes as people write them."""

from __future__ import annotations

import os
import re

from hopstate.errors import ConfigError

UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}


def parse_bytes(text: str | int) -> int:
    """Return a size such as "2GiB", "500 MB" or "1048576" in bytes.

    Raises:
        ConfigError: text is no size.

    >>> parse_bytes("2GiB"), parse_bytes("500 MB")
    (2147483648, 500000000)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(text))
    if not match or match[2].lower() not in UNITS:
        raise ConfigError(f"{text!r} is no size in bytes; write for example 2GiB, 500MB or 1048576")
    number = float(match[1]) * UNITS[match[2].lower()]
    if number >= 2**63:
        raise ConfigError(f"{text!r} is more bytes than any machine holds")
    return int(number)


def machine_memory() -> int:
    """Return the bytes of this machine's memory, a very large number where it cannot be told."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1 << 62
