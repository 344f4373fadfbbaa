"""Every benchmark imports what it names and prints its options."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))


def test_every_script_imports_what_it_names_and_prints_its_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for name in {script.stem for script in SCRIPTS}:  # modules of other tests may have these names
        monkeypatch.delitem(sys.modules, name, raising=False)
    helped = 0
    for script in SCRIPTS:
        text = script.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):  # functions import, too
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hopstate"):
                home = import_module(node.module or "")
                for alias in node.names:
                    if not hasattr(home, alias.name):
                        import_module(f"{node.module}.{alias.name}")
        spec = importlib.util.spec_from_file_location(f"benchmark_{script.stem}", script)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if "ArgumentParser(" in text:
            monkeypatch.setattr(sys, "argv", [script.name, "--help"])
            with pytest.raises(SystemExit) as left:
                module.main()
            assert left.value.code == 0, script.name
            assert script.name in capsys.readouterr().out
            helped += 1
    assert helped > 30
    for name in {script.stem for script in SCRIPTS} & sys.modules.keys():
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent == ROOT / "benchmarks":
            del sys.modules[name]


@pytest.mark.slow
def test_the_tests_that_benchmarks_require_exist() -> None:
    named = {(s.name, test) for s in SCRIPTS for test in re.findall(r"tests/[\w/]+\.py", s.read_text("utf-8"))}
    assert len(named) > 30
    assert [(script, test) for script, test in sorted(named) if not (ROOT / test).is_file()] == []
