"""Any file gives a named error or a documented result, within memory and time, and runs no foreign code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from hopstate.cli.main import main  # noqa: E402
from hostile import seeds, special  # noqa: E402
from hostile.corpus import FIT, Case, cases, place  # noqa: E402

CORPUS = cases()
OTHERS = {
    "run-hop",
    "run-memory",
    "run-edgebank",
    "run-trees",
    "run-tokens",
    "kept",
    "search",
}  # of `make_runs`


class Server:
    """The process that runs cases; see `server.py`."""

    def __init__(self, cache: Path, *before: str) -> None:
        own = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "HOPSTATE_DATA": str(cache), "HOPSTATE_TYPECHECK": "0"}
        command = [*before, sys.executable, str(HERE / "server.py")]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | own
        )

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(30)

    def run(self, argv: tuple[str, ...], cwd: Path, **more: object) -> dict:
        """Return how a command line ended."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({"argv": argv, "cwd": str(cwd), **more}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("cache")) as found:
        yield found


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Path:
    """A folder of good files and one finished run."""
    return make_good(tmp_path_factory.mktemp("good"), server)


def make_good(folder: Path, server: Server) -> Path:
    """Write good files and train a run of mlp."""
    seeds.make_data(folder)
    special.extra(folder)
    done = server.run((*seeds.RUNS["run-mlp"], "--out=run-mlp"), folder, seconds=300)
    assert done["code"] == 0, done
    return folder


def make_runs(folder: Path, server: Server) -> None:
    """Train the other runs, and write their outputs, next to the good files and the run of mlp."""
    for name, argv in seeds.RUNS.items():
        done = server.run((*argv, f"--out={name}"), folder, seconds=300) if name != "run-mlp" else {"code": 0}
        assert done["code"] == 0, done
    done = server.run(
        ("stream", "run-memory", "--data=later.csv", "--ignore-state", "--out=scores.csv"), folder, seconds=300
    )
    assert done["code"] == 0, done
    shutil.copytree(folder / "run-memory", folder / "kept")
    search = ("tune", "mlp", "--data=h.npz", "--trials=1", "--space=model.dim=4,8", *FIT[:-1], "--out=search")
    done = server.run(search, folder, seconds=300)
    assert done["code"] == 0, done
    later = (folder / "later.csv").read_text().replace("20000", "30000").replace("20001", "30001")
    (folder / "later.csv").write_text(later)


@pytest.fixture(scope="module")
def good(few: Path, server: Server) -> Path:
    """The same folder with the other runs."""
    make_runs(few, server)
    return few


def verdict(case: Case, folder: Path, done: dict) -> str:
    """Return how a case failed, or nothing."""
    error_output = done["err"]
    errors = [line for line in error_output.splitlines() if line.startswith("error: ")]
    if done["late"]:
        return "it hung"
    if "Traceback" in error_output or "error: unexpected" in error_output or done["code"] not in (0, 1, 2):
        return f"code {done['code']}"
    if any((folder / name).exists() for name in ("evil", "evil.pyc", "ran")):
        return "foreign code ran"
    if done["code"] == 0 and (misread := _misread(case, folder, done)):
        return misread
    if done["code"] == 0:
        if case.reads is None:
            return ""
        missing = [text for text in case.reads if text not in done["out"]]
        return f"it was read{f', without {missing}' if missing else ''}" if missing or not case.reads else ""
    if case.reads:
        return "it was refused"
    if any("not enough memory" in line for line in errors):
        return ""
    names = {Path(case.target).name, Path(case.target).stem, *Path(case.target).parts[:-1], *case.argv[1:3]}
    if not errors or not any(name.split("=")[-1][:20] in error_output.replace("\\x00", "\0") for name in names):
        return "the error names no file"
    return ""


# undefined if a split has one class, as in small data
_RANKS = re.compile(r"roc.auc|average.precision|macro.f1|\b(new_)?(auc|ap)\b|baselines:", re.IGNORECASE)


def _misread(case: Case, folder: Path, done: dict) -> str:
    """Return what is wrong with the outputs for a file that was read, or nothing."""
    if done.get("wrong"):  # an object that breaks its invariants, or differs from its table
        return done["wrong"]
    lines = [line for line in done["out"].splitlines() if not _RANKS.search(line)]
    if case.argv[0] in ("evaluate", "fit") and re.search(r"\b(nan|inf)\b", "\n".join(lines), re.IGNORECASE):
        return "metrics that are no numbers"
    if case.argv[0] == "stream":
        rows = [line.split(",") for line in (folder / "scores.csv").read_text().splitlines()]
        good = [row[:3] for row in rows[1:]] == [["1", "7", "30000"], ["2", "8", "30001"]]
        return "" if good and all(0 <= float(row[3]) <= 1 for row in rows[1:]) else f"scores {rows}"
    if case.argv[0] in ("score", "rank"):
        table = pd.read_csv(folder / "scores-out.csv")
        good = table[["score", "probability"]].to_numpy()
        return "" if len(table) and ((good >= 0) & (good <= 1)).all() else f"scores {table}"
    if case.argv[0] == "report":
        page = (folder / "page.html").read_text("utf-8")
        return "" if page.rstrip().endswith("</html>") and not re.search(r">(nan|inf)<", page) else "a broken page"
    return ""


def check(case: Case, good: Path, folder: Path, server: Server) -> None:
    place(case, good, folder)
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w').close()\n")
    done = server.run(case.argv, folder, sound=True)
    assert not (wrong := verdict(case, folder, done)), f"{case.name}: {wrong}\n{case.argv}\n{done}"


QUICK = (
    "inspect/events.csv/empty",
    "inspect/edges.csv/cut-0.8",
    "inspect/h.npz/flip-1",
    "inspect/stream/src.npy/parquet-noise",
    "inspect/graph/indptr.npy/zeros",
    "events/nul",
    "npz/node_features/short",
    "csr/adj_indptr/fractions",
    "npy/stream/src.npy/cube",
    "npy/graph/x.npy/version",
    "folder/num_nodes/'x'",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    seeds.make_data(folder)
    return folder


@pytest.mark.parametrize("case", [case for case in CORPUS if case.name in QUICK], ids=lambda case: case.name)
def test_a_sample_of_the_corpus(
    case: Case, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process; the full corpus runs in separate processes."""
    folder = tmp_path / "case"
    place(case, data, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOPSTATE_DATA", str(tmp_path / "cache"))
    code, captured = main(list(case.argv)), capsys.readouterr()
    done = {"code": code, "out": captured.out, "err": captured.err, "late": False}
    assert not (wrong := verdict(case, folder, done)), f"{case.name}: {wrong}\n{done}"


@pytest.mark.slow
@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_the_corpus(case: Case, good: Path, tmp_path: Path, server: Server) -> None:
    check(case, good, tmp_path / "case", server)
