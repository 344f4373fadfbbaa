"""Every benchmark finds what it names: the tests that have to be green first, and the library's names."""

import ast
import importlib.util
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))


def test_tests_that_benchmarks_name_are_there() -> None:
    named = {(s.name, test) for s in SCRIPTS for test in re.findall(r"tests/[\w/]+\.py", s.read_text())}
    assert len(named) > 30
    assert not [(script, test) for script, test in sorted(named) if not (ROOT / test).is_file()]


def test_benchmarks_that_are_run_want_tests_to_be_green() -> None:
    run = [s for s in SCRIPTS if "ArgumentParser(" in s.read_text()]
    assert len(run) > 30
    told = "gpu.py"  # each of its lines says whether they were
    assert [s.name for s in run if "    require_green(" not in s.read_text()] == [told]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.stem)
def test_benchmarks_import_and_tell_their_options(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(script.parent))
    known = set(sys.modules)
    spec = importlib.util.spec_from_file_location(f"benchmark_{script.stem}", script)
    assert spec is not None
    assert spec.loader is not None
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if "ArgumentParser(" in script.read_text():
            monkeypatch.setattr(sys, "argv", [script.name, "--help"])
            with pytest.raises(SystemExit, match="0"):
                module.main()
            assert "usage" in capsys.readouterr().out
        for node in ast.walk(ast.parse(script.read_text())):  # those inside functions too
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hopstate"):
                home = import_module(node.module or "")
                for name in node.names:
                    if not hasattr(home, name.name):
                        import_module(f"{node.module}.{name.name}")
    finally:
        for name in set(sys.modules) - known:
            if not name.startswith("hopstate"):
                where = getattr(sys.modules[name], "__file__", None) or ""
                if Path(where).parent == script.parent:
                    del sys.modules[name]
