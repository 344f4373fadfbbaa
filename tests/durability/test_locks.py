"""One process at a time in a folder: the second is rejected, nothing is lost, a dead process holds no lock."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import hopstate
from hopstate.errors import BusyError, StorageError
from hopstate.io.files import file_lock, locked, replace_file, temporary_name
from hopstate.runs.reproduce import append_line
from hopstate.training.run_folder import RunFolder

HOLD = """
import sys, time
from hopstate.io.files import locked
with locked(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(60)
"""


def graph() -> hopstate.Graph:
    rng = np.random.default_rng(0)
    graph = hopstate.Graph.from_edges(rng.integers(0, 30, (80, 2)), num_nodes=30)
    return graph.with_(x=rng.normal(size=(30, 4)).astype(np.float32), y=np.arange(30) % 2)


def fit(folder: Path, **more: object) -> hopstate.Run:
    return hopstate.fit("mlp", graph(), out=folder, config={**SETTINGS, **more.pop("config", {})}, **more)


SETTINGS = {"loop.epochs": 2, "loop.progress": False, "loop.logger": "none", "model.dim": 4}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.slow
@pytest.mark.parametrize("resume", [False, True])
def test_a_second_fit_on_a_folder_is_rejected_and_changes_nothing(tmp_path: Path, resume: bool) -> None:
    run = fit(tmp_path / "run")
    before = contents(run.path)
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(run.path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(BusyError, match=str(holder.pid)):
            fit(tmp_path / "run", resume=resume)
        assert contents(run.path) == before
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    assert (run.path / ".lock").exists()  # left by the dead process, which holds no lock
    again = fit(tmp_path / "run", resume=True)
    assert again.metrics == run.metrics
    assert not (run.path / ".lock").exists()


def test_a_fit_on_a_locked_folder_is_rejected_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run"), pytest.raises(BusyError, match="run"):
        fit(tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


def test_one_of_many_threads_holds_a_lock_and_others_are_rejected(tmp_path: Path) -> None:
    inside, most, refused = [], [], []

    def work() -> None:
        for _ in range(30):
            try:
                with locked(tmp_path):
                    inside.append(1)
                    most.append(len(inside))
                    inside.pop()
            except BusyError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
    assert len(most) + len(refused) == 120
    assert not list(tmp_path.iterdir())


def test_writers_of_a_results_file_wait_for_each_other(tmp_path: Path) -> None:
    threads = [threading.Thread(target=append_line, args=(tmp_path / "r.jsonl", {"run": i})) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 12
    assert [path.name for path in tmp_path.iterdir()] == ["r.jsonl"]


def stale(path: Path) -> Path:
    """Return the name of a temporary file that an ended process left for path."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    part = temporary_name(path)
    return part.with_name(part.name.replace(f"-{os.getpid()}.", f"-{ended.pid}."))


def test_only_leftovers_are_deleted_under_the_lock(tmp_path: Path) -> None:
    kept = [tmp_path / name for name in ("environment.json", "a.part", ".hidden", ".a.part.txt", ".mine.part")]
    kept.append(temporary_name(tmp_path / "b.csv"))  # of this process
    (tmp_path / "tokens").mkdir()
    left = [stale(tmp_path / "x.csv"), stale(tmp_path / "tokens" / "hops.npy")]
    for path in (*kept, *left):
        path.write_text("")
    folder = stale(tmp_path / "g")
    folder.mkdir()
    (folder / "x.npy").write_text("")
    with locked(tmp_path):
        found = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {*kept, tmp_path / ".lock"}


def test_leftovers_of_one_file_are_those_of_its_name(tmp_path: Path) -> None:
    left, other, shorter = (stale(tmp_path / name) for name in ("a.csv", "b.csv", "a"))
    for path in (left, other, shorter):
        path.write_text("")
    with file_lock(tmp_path / "a.csv"):
        pass
    assert set(tmp_path.iterdir()) == {other, shorter}


def test_a_place_that_cannot_be_locked_is_a_named_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StorageError, match="file"), locked(place):
            pass
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.slow
def test_two_fits_in_one_second_get_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPSTATE_RUNS", str(tmp_path))
    paths = {hopstate.fit("mlp", graph(), config=SETTINGS).path for _ in range(2)}
    assert len(paths) == 2
    assert all(RunFolder.open(path).history() for path in paths)


WRITE = """
import sys, time
from pathlib import Path
from hopstate.io.files import replace_file
def write(part):
    part.write_text("half")
    print(part.name, flush=True)
    sys.stdin.readline()
    part.write_text("whole")
replace_file(Path(sys.argv[1]), write)
"""


@pytest.mark.slow
def test_a_fit_keeps_files_that_others_are_writing_in_its_folder(tmp_path: Path) -> None:
    fit(tmp_path / "run")
    out = tmp_path / "run" / "predictions.csv"
    command = [sys.executable, "-c", WRITE, str(out)]
    writers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    parts = [out.with_name(writer.stdout.readline().strip()) for writer in writers]
    writers[1].kill()
    writers[1].communicate()
    fit(tmp_path / "run", resume=True)
    assert [part.exists() for part in parts] == [True, False]
    writers[0].communicate("go on\n")
    assert writers[0].returncode == 0
    assert out.read_text() == "whole"


def test_temporary_files_of_this_process_or_another_machine_are_kept(tmp_path: Path) -> None:
    elsewhere = tmp_path / f".x.csv.00000000-{os.getpid()}.0123456789ab.part"
    elsewhere.write_text("")

    def write(part: Path) -> None:
        part.write_text("whole")
        with locked(tmp_path):
            assert part.exists()
        assert elsewhere.exists()

    replace_file(tmp_path / "sub" / "z.csv", write)
    os.utime(elsewhere, (0, time.time() - 2 * 86400))
    with locked(tmp_path):
        assert not elsewhere.exists()
    assert (tmp_path / "sub" / "z.csv").read_text() == "whole"
