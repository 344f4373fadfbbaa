"""Files and folders are replaced atomically: data are synced before a rename, and the folder after it."""

import os
from pathlib import Path

import pytest

from hopstate.errors import StorageError
from hopstate.io.files import append_file, replace_files, replace_folder, sync_file, write_text

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs the names of open files")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Calls that sync, rename or delete, in order, each with its path."""
    found: list[tuple[str, str]] = []
    fsync, replace, unlink, rename = os.fsync, Path.replace, Path.unlink, Path.rename

    def synced(handle: int) -> None:
        found.append(("sync", os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    def replaced(path: Path, target: Path) -> Path:
        found.append(("replace", str(target)))
        return replace(path, target)

    def deleted(path: Path, missing_ok: bool = False) -> None:
        if path.exists():
            found.append(("delete", str(path)))
        unlink(path, missing_ok=missing_ok)

    def renamed(path: Path, target: Path) -> Path:
        found.append(("replace", str(target)))
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    monkeypatch.setattr(Path, "unlink", deleted)
    monkeypatch.setattr(Path, "rename", renamed)
    return found


def test_files_are_synced_before_they_are_renamed_and_their_folder_after(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    one, last = tmp_path / "one", tmp_path / "last"
    for path in (one, last):
        path.write_text("old")
    writes = {path: lambda part: part.write_text("new") for path in (one, last)}
    replace_files(writes, marker=last)
    folder = ("sync", str(tmp_path))
    assert [call for call, _ in calls[:2]] == ["sync", "sync"]
    assert all(path != str(tmp_path) for _, path in calls[:2])  # the new contents
    assert calls[2:] == [
        ("delete", str(last)), folder, ("replace", str(one)), folder, ("replace", str(last)), folder
    ]  # fmt: skip
    assert one.read_text() == last.read_text() == "new"
    assert {path.name for path in tmp_path.iterdir()} == {"one", "last"}


def test_a_failed_write_leaves_the_earlier_file(tmp_path: Path) -> None:
    one, last = tmp_path / "one", tmp_path / "last"
    one.write_text("old")
    last.write_text("old")

    def full(part: Path) -> None:
        part.write_text("ha")
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match="last"):
        replace_files({one: lambda part: part.write_text("new"), last: full}, marker=last)
    assert one.read_text() == last.read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"one", "last"}
    write_text(tmp_path / "deep" / "er" / "text", "line\n")
    assert (tmp_path / "deep" / "er" / "text").read_bytes() == b"line\n"


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_is_synced_before_it_is_renamed(tmp_path: Path, calls: list[tuple[str, str]], there: bool) -> None:
    folder = tmp_path / "folder"
    if there:
        folder.mkdir()
        (folder / "stale").write_text("old")

    def fill(part: Path) -> None:
        (part / "deep").mkdir()
        (part / "deep" / "file").write_text("new")

    replace_folder(folder, fill)
    assert [path.name for path in folder.iterdir()] == ["deep"]
    assert (folder / "deep" / "file").read_text() == "new"
    synced = [path for call, path in calls if call == "sync"]
    assert any(path.endswith("deep/file") for path in synced)
    assert any(path.endswith("/deep") for path in synced)
    assert synced[-1] == str(tmp_path)
    if there:
        at = calls.index(("replace", str(folder)))
        assert ("sync", str(tmp_path)) in calls[at:]
        assert any(path.endswith("deep/file") for _, path in calls[:at])


def test_appended_lines_are_synced_on_request(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    path = tmp_path / "log"
    append_file(path, "one\n")
    append_file(path, b"two\n")
    assert not calls
    sync_file(path)
    assert calls == [("sync", str(path)), ("sync", str(tmp_path))]
    assert path.read_text() == "one\ntwo\n"
