"""A new method is one package: registry, help, search and recipes find it by its declarations."""

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from hopstate import methods
from hopstate.cli import main as command_line
from hopstate.errors import ConfigError
from hopstate.methods import get_method, modules
from hopstate.methods.method import Range
from hopstate.runs.reproduce import all_recipes
from hopstate.runs.tune import space_of

PACKAGE = {
    "__init__.py": """
        METHODS = {"sixth": "method"}
    """,
    "method.py": """
        from dataclasses import replace

        from hopstate.methods.message_passing.method import METHODS as OTHERS
        from hopstate.methods.method import Range

        METHODS = {"sixth": replace(OTHERS["mlp"], name="sixth", space={"model.num_layers": Range(1, 2)})}
    """,
    "recipes.yaml": """
        sixth/minesweeper: {metric: roc_auc, runs: 3}
        sixth/minesweeper-deep: {base: sixth/minesweeper, settings: {model.num_layers: 2}}
    """,
}


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with one more package of methods, found in addition to the library's own."""
    package = tmp_path / "sixth_package"
    package.mkdir()
    for name, text in PACKAGE.items():
        (package / name).write_text(textwrap.dedent(text))
    for name in [name for name in sys.modules if name.startswith("hopstate.methods.sixth_package")]:
        monkeypatch.delitem(sys.modules, name)  # of another test's folder
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    monkeypatch.setattr(methods, "MODULES", modules())
    all_recipes.cache_clear()
    yield tmp_path
    all_recipes.cache_clear()


def test_a_new_method_needs_one_package(added: Path) -> None:
    method = get_method("sixth")
    assert space_of(method) == {"model.num_layers": Range(1, 2)}
    recipe = all_recipes()["sixth/minesweeper-deep"]
    assert (recipe.method, recipe.data, recipe.metric, recipe.runs) == ("sixth", "minesweeper", "roc_auc", 3)
    assert recipe.settings == {"model.num_layers": 2}
    assert list(modules()).count("sixth") == 1


@pytest.mark.parametrize("wrong", ["{mertic: roc_auc}", "{base: sixth/other}", "{published: [{mean: 0.5}]}"])
def test_a_recipe_that_cannot_be_read_is_named(added: Path, wrong: str) -> None:
    (added / "sixth_package" / "recipes.yaml").write_text(f"sixth/minesweeper: {wrong}\n")
    with pytest.raises(ConfigError, match="sixth/minesweeper"):
        all_recipes()


def test_help_names_a_new_method(added: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["fit", "sixth", "--help"]) == 0
    assert "--model.num_layers" in capsys.readouterr().out


def test_two_packages_may_not_define_one_name(added: Path) -> None:
    (added / "seventh").mkdir()
    (added / "seventh" / "__init__.py").write_text('METHODS = {"sixth": "method"}\n')
    with pytest.raises(ConfigError, match="sixth"):
        modules()


def test_each_package_declares_what_its_modules_define() -> None:
    for name in modules():
        assert get_method(name).name == name
