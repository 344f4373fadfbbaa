"""The data of a run that goes on, where the command line names none."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from hopstate.errors import ConfigError
from hopstate.training.run_folder import RunFolder


def with_its_data(method: str, words: Sequence[str]) -> list[str]:
    """Return the words of `fit METHOD`, with the data of the run in --out where --resume names none.

    Args:
        method: its name.
        words: after the method; a file of --config may name the data, too, so that nothing is added beside one.

    Raises:
        CheckpointError: the run's config.json is damaged.
        ConfigError: the run is of another method.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--resume", action="store_true")
    for name in ("--out", "--data", "--config"):
        parser.add_argument(name, nargs="?")
    found, _ = parser.parse_known_args(list(words))
    if not found.resume or found.out is None or not (folder := RunFolder(found.out)).settings():
        return list(words)
    own = folder.settings().get("method")
    if isinstance(own, str) and own != method:
        raise ConfigError(
            f"{found.out} is a run of {own}; hopstate fit {own} --resume --out {found.out} goes on with it"
        )
    if found.data is not None or found.config is not None:
        return list(words)
    data = folder.settings().get("data")
    return [*words, f"--data={data}"] if isinstance(data, str) else list(words)
