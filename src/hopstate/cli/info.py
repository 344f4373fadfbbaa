"""`hopstate info`: show versions, devices, the cache folder, and the implementation of each operator in use."""

from __future__ import annotations

from functools import partial
from typing import Any

from hopstate.cli.commands import CommandParser, CommandResult
from hopstate.io.files import cache_folder
from hopstate.training.run_folder import environment

FACTS = ("python", "platform", "processor", "threads", "gpu", "revision")
COLUMNS = ("operator", "path", "why")


def run(argv: list[str]) -> CommandResult:
    """Report the machine and the installed packages."""
    CommandParser(prog="hopstate info", description=__doc__, allow_abbrev=False).parse_args(argv[1:])
    facts = environment(None)
    record = {name: facts[name] for name in (*FACTS, "versions")} | {"cache": cache_folder()}
    record["paths"] = [dict(zip(COLUMNS, row, strict=True)) for row in describe_paths()]
    return CommandResult(record, partial(_show, record))


def describe_paths() -> list[tuple[str, str, str]]:
    """Return (op and device, path in use, reason) for every op that has more than one path."""
    import torch

    from hopstate.layers.modes import onednn_is_faster
    from hopstate.ops.dispatch import choose_path

    devices = [("cpu", torch.float32)]
    if torch.cuda.is_available():
        devices += [("cuda", torch.float32), ("cuda", torch.float64)]
    lines = []
    for op in ("selective_scan", "conv1d"):
        for device, dtype in devices:
            path = choose_path(device, dtype)
            label = f"{op} on {device}" + (", float64" if dtype == torch.float64 else "")
            lines.append((label, path.name, path.reason))
        if not torch.cuda.is_available():
            lines.append((f"{op} on cuda", "none", "torch sees no CUDA device"))
    why = (
        "its 512-bit vectors, which MKL leaves unused here"
        if onednn_is_faster()
        else "MKL is as fast here, or the only one"
    )
    return [*lines, ("linear maps in training on cpu", "oneDNN" if onednn_is_faster() else "torch", why)]


def _show(record: dict[str, Any]) -> None:
    from rich.table import Table

    from hopstate.io.output import screen

    console = screen()
    for name in FACTS:
        console.print(f"{name:<10} {record[name]}", highlight=False)
    console.print("versions   " + ", ".join(f"{k} {v}" for k, v in record["versions"].items()), highlight=False)
    console.print(f"cache      {record['cache']}", highlight=False)
    table = Table(*COLUMNS)
    for row in record["paths"]:
        table.add_row(*row.values())
    console.print(table)
