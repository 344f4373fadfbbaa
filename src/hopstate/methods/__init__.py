"""One package a method: from data records through tokens and model to a task that the loop can run.

A package here declares METHODS, the names of its methods with the module that defines each as a `method.Method`. Its
`recipes.yaml` has published rows, if any. It holds all that is the method's own; `shared` has what several share.
"""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from hopstate.errors import CheckpointError, ConfigError, nearest
from hopstate.io.opening import printable_name
from hopstate.methods.method import AnyMethod, Method


def _packages() -> list[tuple[str, ModuleType]]:
    """Return the packages here that declare methods, by name; importing one runs no code but its declarations."""
    names = sorted(f"{__name__}.{found.name}" for found in iter_modules(__path__) if found.ispkg)
    packages = [(name, import_module(name)) for name in names]
    return [(name, package) for name, package in packages if "METHODS" in vars(package)]


def modules() -> dict[str, str]:
    """Return the module that defines each method, by the method's name, as its package declares."""
    found: dict[str, str] = {}
    for place, package in _packages():
        for name, module in package.METHODS.items():
            if name in found:
                raise ConfigError(f"both {found[name]} and {place}.{module} define the method {name!r}")
            found[name] = f"{place}.{module}"
    return found


def recipe_files() -> list[Path]:
    """Return the recipe files of the packages of methods."""
    files = [Path(str(package.__file__)).parent / "recipes.yaml" for _, package in _packages()]
    return [file for file in files if file.is_file()]


# by name; a method's own module is imported when first asked for, so that the command line starts quickly
MODULES = modules()
# made of finished runs by `hopstate ensemble`, not by `hopstate fit`
OF_RUNS = {"ensemble": f"{__name__}.ensemble.events", "link-ensemble": f"{__name__}.ensemble.links"}

ALLOWED = "HOPSTATE_METHODS"  # environment variable: methods module:NAME that run folders may name, with commas
_named: set[str] = set()  # methods of other modules that the user of this process has named


def get_method(name: str) -> AnyMethod:
    """Return a method by name, or one defined elsewhere by "module:NAME", the module importable from here.

    A method found that way is called so too, and its runs remember it. The name must come from the user: importing
    a module runs it. For the name in a run folder there is `method_of_run`.

    Raises:
        ConfigError: there is none of that name; the nearest is suggested.
    """
    if ":" in name:
        found = _outside(name)
        _named.add(name)
        return found
    known = MODULES | OF_RUNS
    if name not in known:
        raise ConfigError(
            f"unknown method {name!r}{nearest(name, MODULES)}; known: {', '.join(MODULES)}, "
            "or module:NAME for one of your own"
        )
    own = vars(import_module(known[name]))
    found = own.get("METHODS", {}).get(name, own.get("METHOD"))
    if not isinstance(found, Method):
        raise ConfigError(f"{known[name]} defines neither METHODS[{name!r}] nor METHOD, a Method")
    return found


def method_of_run(name: object, where: str, named: str | None = None) -> AnyMethod:
    """Return the method that a run folder names; no module outside the library is imported on its word.

    Args:
        name: what stands in the folder.
        where: the file, for messages.
        named: the method as the user names it (`--method`); None where they do not.

    Raises:
        ConfigError: the user names another method than the run's.
        CheckpointError: no method of the library, nor one that the user has named in this process or allowed by the
            environment variable HOPSTATE_METHODS.
    """
    if not isinstance(name, str):
        raise CheckpointError(f"{where} names no method; it is of no hopstate run")
    if named is not None and named != name:
        raise ConfigError(f"{where} is of the method {printable_name(name)}, not of {named}")
    if ":" not in name and name not in MODULES | OF_RUNS:
        raise CheckpointError(
            f"{where} is of the method {printable_name(name)}, which is not known{nearest(name, MODULES)}"
        )
    allowed = [part.strip() for part in os.environ.get(ALLOWED, "").split(",")]
    if ":" in name and named is None and name not in _named and name not in allowed:
        raise CheckpointError(
            f"{where} is of the method {printable_name(name)}, which is code outside hopstate, and a run folder may come from "
            f"anywhere; if you trust that module, name it: --method {printable_name(name)} (method= in Python), or set {ALLOWED}"
        )
    return get_method(name)


def _outside(name: str) -> AnyMethod:
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise ConfigError(f"{printable_name(name)!r} is no module:NAME of a method")
    try:
        found = getattr(import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:  # the module is there and misses another
            raise
        raise ConfigError(
            f"no module {module!r} for method {name!r}; install it, or name its folder in PYTHONPATH"
        ) from None
    if not isinstance(found, Method):
        raise ConfigError(f"{name!r} is no hopstate.methods.method.Method but {type(found).__name__}")
    return replace(found, name=name)
