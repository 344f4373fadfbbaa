"""Unreadable and unwritable files and folders: a named error for every reader and writer.

Root may read and write everything, so under root the commands run in a process without its privileges.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from hostile import seeds
from hostile.corpus import _readers, _runs
from hostile.test_hostile import OTHERS, Server, make_good, make_runs

RIGHTS = "-dac_override,-dac_read_search"
IS_ROOT = hasattr(os, "getuid") and os.getuid() == 0
BEFORE = ("setpriv", f"--bounding-set={RIGHTS}", f"--inh-caps={RIGHTS}") if IS_ROOT else ()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(os, "fork") or (IS_ROOT and shutil.which("setpriv") is None),
        reason="root cannot give up its rights",
    ),
]
FILES = [*_readers(), *_runs()]
QUICK = [case for case in FILES if not OTHERS & {*case[0]}]
REST = [case for case in FILES if OTHERS & {*case[0]}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("cache"), *BEFORE) as found:
        yield found


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Path:
    return make_good(tmp_path_factory.mktemp("good"), server)


@pytest.fixture(scope="module")
def whole(good: Path, server: Server) -> Path:
    make_runs(good, server)
    return good


def given(needs: tuple[str, ...], good: Path, folder: Path) -> None:
    folder.mkdir()
    for name in needs:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (good / name).is_dir() else shutil.copy
        copy(good / name, folder / name)


def refused(
    needs: tuple[str, ...], target: str, argv: tuple[str, ...], good: Path, folder: Path, server: Server
) -> None:
    given(needs, good, folder)
    if "search" in needs:
        search = folder / "search" / "search.json"
        search.write_text(search.read_text().replace(str(good), str(folder)))
    (next(folder.glob(target)) if "*" in target else folder / target).chmod(0)
    done = server.run(argv, folder)
    assert done["code"] in (1, 2), done
    assert "Traceback" not in done["err"]
    assert "error: unexpected" not in done["err"]
    shown = next(line for line in done["err"].splitlines() if line.startswith("error: "))
    assert Path(target).name in shown or target.split("/")[0] in shown, shown
    assert "ermission" in shown or "unable to open" in shown, shown


def _named(cases: list) -> list:
    return [pytest.param(*case, id=f"{case[2][0]}-{case[1]}") for case in cases]


@pytest.mark.parametrize(("needs", "target", "argv"), _named(QUICK))
def test_an_unreadable_file_is_named(needs, target, argv, good: Path, tmp_path: Path, server: Server) -> None:
    refused(needs, target, argv, good, tmp_path / "case", server)


@pytest.mark.slow
@pytest.mark.parametrize(("needs", "target", "argv"), _named(REST))
def test_an_unreadable_file_of_a_run_is_named(needs, target, argv, whole: Path, tmp_path: Path, server: Server) -> None:
    refused(needs, target, argv, whole, tmp_path / "case", server)


@pytest.mark.parametrize(
    ("needs", "argv"),
    [
        (("h.npz",), (*seeds.RUNS["run-mlp"], "--out=closed/run")),
        (("run-mlp", "h.npz"), ("predict", "run-mlp", "--data=h.npz", "--out=closed/p.csv")),
        (("run-mlp", "h.npz"), ("report", "run-mlp", "--out=closed/page.html")),
        (("h.npz",), ("inspect", "h.npz", "--plot=closed/card.png")),
    ],
    ids=["fit", "predict", "report", "inspect"],
)
def test_an_unwritable_folder_is_named(
    needs: tuple[str, ...], argv: tuple[str, ...], good: Path, tmp_path: Path, server: Server
) -> None:
    folder = tmp_path / "case"
    given(needs, good, folder)
    (folder / "closed").mkdir(mode=0o555)
    done = server.run(argv, folder)
    assert done["code"] in (1, 2), done
    assert "Traceback" not in done["err"]
    assert any(line.startswith("error: ") and "closed" in line for line in done["err"].splitlines()), done["err"]
    assert not list((folder / "closed").iterdir())


def test_an_unsearchable_folder_is_named(good: Path, tmp_path: Path, server: Server) -> None:
    folder = tmp_path / "case"
    given(("run-mlp", "stream", "graph"), good, folder)
    for name, argv in (("run-mlp", ("evaluate", "run-mlp")), ("stream", ("inspect", "stream", "--kind", "events")),
                       ("graph", ("inspect", "graph", "--kind", "graph"))):  # fmt: skip
        (folder / name).chmod(0)
        done = server.run(argv, folder)
        assert done["code"] in (1, 2), done
        assert "Traceback" not in done["err"]
        assert name in done["err"]
        (folder / name).chmod(0o777)
