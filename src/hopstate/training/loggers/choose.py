"""Which loggers a run's settings ask for, and whether what they need is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hopstate.errors import ConfigError, MissingExtraError, nearest

if TYPE_CHECKING:
    from hopstate.training.loggers.protocol import Logger

NEEDS = {  # logger → modules that it needs
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow", "sqlalchemy", "alembic"),  # MLflow's own local store is a SQLite file
    "wandb": ("wandb",),
}


def logger_names(logger: str, tensorboard: str = "auto") -> tuple[str, ...]:
    """Return the loggers that two settings ask for; "auto" alone is not looked up here, and asks for none.

    Args:
        logger: names with commas between them, "auto" or "none".
        tensorboard: "yes" adds TensorBoard, "no" rules it out.

    Raises:
        ConfigError: an unknown name, or settings that contradict each other.

    >>> logger_names("mlflow,wandb"), logger_names("none"), logger_names("auto", "yes")
    (('mlflow', 'wandb'), (), ('tensorboard',))
    """
    if tensorboard not in ("auto", "yes", "no"):
        raise ConfigError(f"loop.tensorboard must be auto, yes or no; got {tensorboard!r}")
    if logger == "none" and tensorboard == "yes":
        raise ConfigError("loop.logger=none and loop.tensorboard=yes contradict each other; leave one out")
    named = () if logger in ("auto", "none") else tuple(dict.fromkeys(part.strip() for part in logger.split(",")))
    known = (*NEEDS, "auto", "none")
    for name in named:
        if name not in NEEDS:
            alone = f"; {name} stands alone" if name in known else nearest(name, known)
            raise ConfigError(f"loop.logger knows {', '.join(known)}, and commas between; got {logger!r}{alone}")
    if "tensorboard" in named and tensorboard == "no":
        raise ConfigError(f"loop.logger={logger} and loop.tensorboard=no contradict each other; leave one out")
    return named if tensorboard != "yes" or "tensorboard" in named else ("tensorboard", *named)


def check_loggers(logger: str, tensorboard: str) -> tuple[str, ...]:
    """Return the loggers of a run; "auto" is TensorBoard where that is installed.

    Raises:
        ConfigError: see `logger_names`.
        MissingExtraError: one that is asked for by name is not installed; the message names the extra.
    """
    names = logger_names(logger, tensorboard)
    for name in names:
        lacking = [module for module in NEEDS[name] if not installed(module)]
        if lacking:
            asked = (
                "loop.tensorboard=yes" if name == "tensorboard" and tensorboard == "yes" else f"loop.logger={logger}"
            )
            raise MissingExtraError(f"{asked} needs {', '.join(lacking)}: pip install 'hopstate[{name}]'")
    if logger == "auto" and tensorboard == "auto" and installed("tensorboard"):
        return ("tensorboard",)
    return names


def installed(module: str) -> bool:
    """Return whether a module of the top level can be imported, without importing it."""
    try:
        return find_spec(module) is not None
    except ValueError:  # it stands in sys.modules without a spec, or as None
        return False


def make_logger(name: str, folder: Path) -> Logger:
    """Return a logger by name.

    Args:
        name: "tensorboard", "mlflow" or "wandb".
        folder: of the run.

    Raises:
        MissingExtraError: its library is there but cannot be imported.
    """
    try:
        if name == "tensorboard":
            from hopstate.training.loggers.tensorboard import TensorBoard

            return TensorBoard(folder)
        if name == "mlflow":
            from hopstate.training.loggers.mlflow import MLflow

            return MLflow(folder)
        from hopstate.training.loggers.wandb import WandB

        return WandB(folder)
    except ImportError as error:
        raise MissingExtraError(f"logger {name}: {error}; pip install 'hopstate[{name}]'") from error
