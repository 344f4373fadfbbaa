"""Text ids stay text in every later file, even if all ids of a file look like numbers."""

from pathlib import Path

import pandas as pd
import pytest

import hopstate
from hopstate.errors import HopstateWarning
from hopstate.runs.run import Run

IDS = ["alice", "1.0", "1e5", "-5", "007", "7", "x y"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of recency over 60 events between such ids."""
    home = tmp_path_factory.mktemp("texts")
    ends = [IDS[i % 7] for i in range(60)], [IDS[(3 * i + i // 7) % 7] for i in range(60)]
    pd.DataFrame({"src": ends[0], "dst": ends[1], "t": range(60)}).to_csv(home / "own.csv", index=False)
    return hopstate.fit("recency", home / "own.csv", out=home / "run", config={})


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["1e5", pytest.param("-5", marks=pytest.mark.slow)])
def test_ids_in_files_of_queries_stay_texts(name: str, run: Run, tmp_path: Path) -> None:
    single_id = written(tmp_path / "ids.csv", f"id\n{name}\n")
    pairs = written(tmp_path / "pairs.csv", f"src,dst\n{name},{name}\n7,{name}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.showwarning", lambda *_, **__: pytest.fail("an id was not known"))
        pd.testing.assert_frame_equal(run.score(pairs), run.score([(name, name), ("7", name)]))
        pd.testing.assert_frame_equal(run.rank(single_id, top=3), run.rank(name, top=3))
        pd.testing.assert_frame_equal(
            run.rank("alice", top=1, candidates=single_id), run.rank("alice", top=1, candidates=[name])
        )


@pytest.mark.parametrize("name", ["1.0", pytest.param("1e5", marks=pytest.mark.slow)])
def test_ids_of_later_events_stay_texts(name: str, run: Run, tmp_path: Path) -> None:
    later = written(tmp_path / "later.csv", f"src,dst,t\n{name},7,100\n")
    table = pd.DataFrame({"src": [name], "dst": ["7"], "t": [100]})
    found = hopstate.stream(run.path, later, save=tmp_path / "state")
    assert found.src.tolist() == [name]
    assert found.dst.tolist() == ["7"]
    for events in (later, table):
        assert run.score([(name, "7")], events=events).score.item() > -1  # seen just before
        assert hopstate.predict(run.path, data=events).src.tolist() == [name]


@pytest.mark.slow
def test_spaces_around_a_known_id_are_ignored(run: Run) -> None:
    plain = run.score([("alice", "7")])
    pd.testing.assert_frame_equal(run.score([(" alice", "7 ")]), plain)
    pd.testing.assert_frame_equal(run.rank(" alice ", top=3), run.rank("alice", top=3))
    with pytest.warns(HopstateWarning, match=" unknown"):
        assert run.score([(" unknown", "7")]).src.tolist() == [" unknown"]
