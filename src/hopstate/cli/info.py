"""`hopstate info`: versions, devices, cache folder, and the path each fast operator takes here."""

from __future__ import annotations

from hopstate.io.cache import cache_folder
from hopstate.training.run_folder import environment


def run(argv: list[str]) -> int:
    """Run the command."""
    from rich.table import Table

    from hopstate.io.screen import screen
    from hopstate.ops.info import describe_paths

    facts = environment(None)
    console = screen()
    for name in ("python", "platform", "processor", "threads", "gpu", "revision"):
        console.print(f"{name:<10} {facts[name]}", soft_wrap=True, highlight=False)
    console.print(
        "versions   " + ", ".join(f"{k} {v}" for k, v in facts["versions"].items()), soft_wrap=True, highlight=False
    )
    console.print(f"cache      {cache_folder()}", soft_wrap=True, highlight=False)
    table = Table("operator", "path", "why")
    for row in describe_paths():
        table.add_row(*row)
    console.print(table)
    return 0
