"""Run configurations of published table rows: one named recipe each, data and no code."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module

from hopstate.errors import ConfigError, nearest
from hopstate.methods import recipe_modules
from hopstate.methods.recipe import Published, Recipe


@cache
def all_recipes() -> dict[str, Recipe]:
    """Return all recipes by name.

    Raises:
        ConfigError: two have the same name.
    """
    found: dict[str, Recipe] = {}
    for module in recipe_modules():
        for recipe in import_module(module).RECIPES:
            if recipe.name in found:
                raise ConfigError(f"there are two recipes {recipe.name!r}")
            found[recipe.name] = recipe
    return found


def find_recipes(pattern: str) -> list[Recipe]:
    """Return the recipe of a name, or all whose name matches a pattern such as gmn/* or */minesweeper.

    Raises:
        ConfigError: there is none; the nearest is suggested.
    """
    known = all_recipes()
    found = [recipe for name, recipe in known.items() if fnmatchcase(name, pattern)]
    if not found:
        named = [name for name in known if pattern.strip("*/") in name] if pattern.strip("*/") else []
        hint = f"; {pattern!r} is part of {', '.join(named[:5])}" if named else nearest(pattern, known)
        raise ConfigError(f"there is no recipe {pattern!r}{hint}; `hopstate reproduce --list` shows all")
    return found


__all__ = ["Published", "Recipe", "all_recipes", "find_recipes"]
