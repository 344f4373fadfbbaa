"""The data of a run that goes on, where the command line names none."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from hopstate.training.run_folder import RunFolder


def with_its_data(words: Sequence[str]) -> list[str]:
    """Return the words of `fit METHOD`, with the data of the run in --out where --resume names none.

    Args:
        words: after the method; a file of --config may name the data, too, so that nothing is added beside one.

    Raises:
        CheckpointError: the run's config.json is damaged.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--resume", action="store_true")
    for name in ("--out", "--data", "--config"):
        parser.add_argument(name, nargs="?")
    found, _ = parser.parse_known_args(list(words))
    if not found.resume or found.out is None or found.data is not None or found.config is not None:
        return list(words)
    data = RunFolder(found.out).settings().get("data")
    return [*words, f"--data={data}"] if isinstance(data, str) else list(words)
