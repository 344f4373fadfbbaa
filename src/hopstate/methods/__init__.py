"""One file per method: from data records through tokens and model to a task the loop can run."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from hopstate.errors import ConfigError, nearest
from hopstate.methods.base import Method

# name → module that defines METHODS; imported when first asked for, so that the command line starts quickly
MODULES = {
    "nagphormer": "hopstate.methods.nagphormer",
    "gmn": "hopstate.methods.gmn",
    "gmn-graphs": "hopstate.methods.gmn_graphs",
    "gin-graphs": "hopstate.methods.gmn_graphs",
    "mlp": "hopstate.methods.full_batch",
    "gcn": "hopstate.methods.full_batch",
    "sage": "hopstate.methods.full_batch",
    "gin": "hopstate.methods.full_batch",
    "gat": "hopstate.methods.full_batch",
    "pna": "hopstate.methods.full_batch",
    "gcnii": "hopstate.methods.full_batch",
    "recency": "hopstate.methods.zero_parameter",
    "edgebank": "hopstate.methods.zero_parameter",
    "dygformer": "hopstate.methods.dygformer",
    "dyg-mamba": "hopstate.methods.dyg_mamba",
    "dyg-mamba-nodes": "hopstate.methods.dyg_mamba",
    "graphmixer": "hopstate.methods.graphmixer",
    "ctdg-ssm": "hopstate.methods.ctdg_ssm",
    "ctdg-ssm-nodes": "hopstate.methods.ctdg_ssm",
    "ctdg-ssm-sequences": "hopstate.methods.ctdg_ssm_sequences",
}


def get_method(name: str) -> Method:
    """Return a method by name, or one defined elsewhere by "module:NAME", the module importable from here.

    A method found that way is called so too, and its runs remember it.

    Raises:
        ConfigError: there is none of that name; the nearest is suggested.
    """
    if ":" in name:
        return _outside(name)
    if name not in MODULES:
        raise ConfigError(
            f"unknown method {name!r}{nearest(name, MODULES)}; known: {', '.join(MODULES)}, "
            "or module:NAME for one of your own"
        )
    return import_module(MODULES[name]).METHODS[name]


def _outside(name: str) -> Method:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:  # the module is there and misses another
            raise
        raise ConfigError(
            f"no module {module!r} for method {name!r}; install it, or name its folder in PYTHONPATH"
        ) from None
    if not isinstance(found, Method):
        raise ConfigError(f"{name!r} is no hopstate.methods.base.Method but {type(found).__name__}")
    return replace(found, name=name)
