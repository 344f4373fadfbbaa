"""A folder has one writer at a time."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hopstate.errors import BusyError, StorageError
from hopstate.io.files import locked

HOLD = """
    import sys, time
    from hopstate.io.files import locked
    with locked(sys.argv[1], "a state"):
        print("locked", flush=True)
        time.sleep(60)
"""


def test_a_second_writer_is_rejected_until_the_first_ends(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    with locked(folder, "a state"):
        with (
            pytest.raises(BusyError, match="run"),
            locked(folder, "a state"),
        ):
            pass
        with locked(tmp_path / "other"):
            pass
    with locked(folder):
        pass


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(HOLD), str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"locked\n"
        with pytest.raises(BusyError), locked(tmp_path):
            pass
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    with locked(tmp_path):
        pass


def test_a_path_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"), locked(tmp_path / "file"):
        pass


def test_only_files_left_by_killed_processes_are_deleted(tmp_path: Path) -> None:
    for name in (".tmpA1b2C3", ".tmp", ".tmpA1b2C3d", "a.tmp", "kept.safetensors"):
        (tmp_path / name).write_text("")
    (tmp_path / ".tmpfolder").mkdir()
    with locked(tmp_path):
        pass
    left = {".tmp", ".tmpA1b2C3d", "a.tmp", "kept.safetensors", ".tmpfolder"}
    assert {path.name for path in tmp_path.iterdir()} == left
