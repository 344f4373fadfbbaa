"""The engines by name, and what each must have."""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path

from hopstate.data.prepare.engine import Engine
from hopstate.data.prepare.on_duckdb import DuckDBEngine
from hopstate.data.prepare.on_spark import SparkEngine
from hopstate.errors import ConfigError, MissingExtraError, nearest

ENGINES = ("duckdb", "spark")
_NEEDED = {"duckdb": ("prepare", ("duckdb", "ibis")), "spark": ("spark", ("ibis", "pyspark"))}


def check_engine(name: str) -> None:
    """Check that an engine is known and installed.

    Raises:
        ConfigError: no such engine.
        MissingExtraError: it, or the Java that Spark runs on, is not installed.
    """
    if name not in ENGINES:
        raise ConfigError(f"unknown engine {name!r}{nearest(name, ENGINES)}; known: {', '.join(ENGINES)}")
    extra, modules = _NEEDED[name]
    try:
        for module in modules:
            importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"prepare with --engine {name} needs {error.name}: pip install 'hopstate[{extra}]'"
        ) from None
    home = os.environ.get("JAVA_HOME")
    if name == "spark" and not shutil.which(f"{home}/bin/java" if home else "java"):
        where = f"JAVA_HOME={home} holds none" if home else "there is none on the path"
        raise MissingExtraError(
            f"prepare with --engine spark needs Java 17, and {where}: install it (Debian: openjdk-17-jre-headless) or "
            "set JAVA_HOME"
        )


def open_engine(name: str, folder: Path, memory: int, threads: int | None) -> Engine:
    """Return an engine that `check_engine` has let through, at work.

    Args:
        name: of `ENGINES`.
        folder: of work.
        memory: bytes, of DuckDB; Spark has its own settings.
        threads: of DuckDB, at most so many; None for one a core.

    Raises:
        ConfigError: Spark does not start.
    """
    return SparkEngine(folder) if name == "spark" else DuckDBEngine(folder, memory, threads)
