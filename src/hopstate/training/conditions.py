"""What a run's last digits depend on beside its settings and its data: threads, libraries, processor, device."""

from __future__ import annotations

from typing import Any

from hopstate.errors import CheckpointError
from hopstate.training.run_folder import RunFolder, machine

LIBRARIES = ("torch", "numpy", "numba")


def conditions(device: str, found: dict[str, Any] | None = None) -> dict[str, str]:
    """Return what decides between equal bits and equal to rounding, by name.

    Args:
        device: "cpu", "cuda", ...
        found: of `machine`; by default the present one's.
    """
    found = machine() if found is None else found
    place = found["processor"] if device == "cpu" else found["gpu"] or device
    return {"threads": str(found["threads"]), "processor": place} | {
        name: found["versions"][name] for name in LIBRARIES
    }


def first_conditions(run: RunFolder, device: str) -> dict[str, str]:
    """Return the conditions of a run's first start, for checkpoints that hold none; empty where nothing is told."""
    try:
        return conditions(device, run.read_json("environment.json"))
    except (CheckpointError, KeyError, TypeError):
        return {}


def told_changes(before: dict[str, str], now: dict[str, str]) -> str | None:
    """Return a sentence on conditions that have changed since a run was stopped, or None."""
    changed = [(name, old, now[name]) for name, old in before.items() if now.get(name, old) != old]
    if not changed:
        return None
    told = ", ".join(
        f"{old} thread(s), now {new}" if name == "threads" else f"{name} {old}, now {new}" for name, old, new in changed
    )
    mend = (
        f"; OMP_NUM_THREADS={before['threads']} gives the same bits" if [c[0] for c in changed] == ["threads"] else ""
    )
    return (
        f"the run was interrupted under other conditions ({told}): it goes on equal to rounding, not bit for bit{mend}"
    )
