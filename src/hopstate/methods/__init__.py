"""Methods, one package each: configuration, tokens, model and task.

A package declares METHODS, which maps method names to the module that defines each one as a `method.Method`. Published
settings are in its `recipes.yaml`. Code used by several methods is in `shared`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from hopstate.errors import CheckpointError, ConfigError, nearest
from hopstate.io.opening import shorten
from hopstate.methods.method import AnyMethod, Method


def _packages() -> list[tuple[str, ModuleType]]:
    """Return the subpackages that declare methods, by name. Importing one loads no method module."""
    names = sorted(f"{__name__}.{found.name}" for found in iter_modules(__path__) if found.ispkg)
    packages = [(name, import_module(name)) for name in names]
    return [(name, package) for name, package in packages if "METHODS" in vars(package)]


def modules() -> dict[str, str]:
    """Return the module that defines each method, by the method's name, as its package declares."""
    module_of: dict[str, str] = {}
    for place, package in _packages():
        for name, module in package.METHODS.items():
            if name in module_of:
                raise ConfigError(f"both {module_of[name]} and {place}.{module} define the method {name!r}")
            module_of[name] = f"{place}.{module}"
    return module_of


def recipe_files() -> list[Path]:
    """Return the recipe files of the packages of methods."""
    files = [Path(str(package.__file__)).parent / "recipes.yaml" for _, package in _packages()]
    return [file for file in files if file.is_file()]


# module of each method, imported on first use to keep the command line fast
MODULES = modules()
# created from finished runs by `hopstate ensemble`, not by `hopstate fit`
OF_RUNS = {"ensemble": f"{__name__}.ensemble.events", "link-ensemble": f"{__name__}.ensemble.links"}

ALLOWED = "HOPSTATE_METHODS"  # environment variable: methods module:NAME that run folders may name, with commas
_named: set[str] = set()  # methods of other modules that the user of this process has named


def get_method(name: str) -> AnyMethod:
    """Return a method by name. "module:NAME" imports a custom method.

    Runs record a custom method under that full name. Importing a module runs its code, so the name must come from the
    user. Use `method_of_run` for a name read from a run folder.

    Raises:
        ConfigError: the method does not exist. The message suggests the closest name.

    Example:
        >>> get_method("gcn").name
        'gcn'
    """
    if ":" in name:
        method = _outside(name)
        _named.add(name)
        return method
    module_of = MODULES | OF_RUNS
    if name not in module_of:
        raise ConfigError(
            f"unknown method {name!r}{nearest(name, MODULES)}; known: {', '.join(MODULES)}, "
            "or module:NAME for a custom method"
        )
    # METHODS of a package maps names to modules; METHODS of such a module maps names to Methods.
    namespace = vars(import_module(module_of[name]))
    method = namespace.get("METHODS", {}).get(name, namespace.get("METHOD"))
    if not isinstance(method, Method):
        raise ConfigError(f"{module_of[name]} defines neither METHODS[{name!r}] nor METHOD, a Method")
    return method


def method_of_run(name: object, where: str) -> AnyMethod:
    """Return the method named in a run folder. It never imports an untrusted custom module.

    Args:
        name: the name stored in the folder.
        where: the file, for error messages.

    Raises:
        CheckpointError: the method is unknown, or it is a custom method that the user has neither named in this process
            nor allowed in the environment variable HOPSTATE_METHODS.
    """
    if not isinstance(name, str):
        raise CheckpointError(f"{where} does not name a method, so it is not from a hopstate run")
    if ":" not in name and name not in MODULES | OF_RUNS:
        raise CheckpointError(f"{where} is of the method {shorten(name)}, which is not known{nearest(name, MODULES)}")
    allowed = [part.strip() for part in os.environ.get(ALLOWED, "").split(",")]
    if ":" in name and name not in _named and name not in allowed:
        raise CheckpointError(
            f"{where} is of the custom method {shorten(name)}, and run folders may be untrusted; if you trust "
            f"that module, name it: --method {shorten(name)} (hopstate.methods.get_method in Python), or set {ALLOWED}"
        )
    return get_method(name)


def _outside(name: str) -> AnyMethod:
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise ConfigError(f"{shorten(name)!r} is not a method of the form module:NAME")
    try:
        method = getattr(import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:  # the module is there and misses another
            raise
        raise ConfigError(
            f"no module {module!r} for method {name!r}; install it, or name its folder in PYTHONPATH"
        ) from None
    if not isinstance(method, Method):
        raise ConfigError(f"{name!r} is not a hopstate.methods.method.Method: got {type(method).__name__}")
    return replace(method, name=name)
