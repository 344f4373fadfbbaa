"""Preparing events or edges writes the same bytes for any chunks, after an interrupt, a kill or a full disk."""

import signal
import subprocess
import sys
from functools import partial

import pytest

pytest.importorskip("duckdb", reason="prepare needs the extra prepare")
pytest.importorskip("ibis", reason="prepare needs the extra prepare")

from test_prepare_edges import table
from test_prepare_store import frame

from hopstate.data.prepare import prepare
from hopstate.data.readers.read_events import read_events
from hopstate.data.readers.read_graph import read_graph
from hopstate.errors import FormatError

pytestmark = pytest.mark.filterwarnings("ignore::hopstate.errors.HopstateWarning")
each = pytest.mark.parametrize("kind", ["events", "edges"])
TABLES = {"events": frame, "edges": table}
READERS = {"events": read_events, "edges": read_graph}
CHILD = """
import sys
from hopstate.data.prepare import prepare
prepare(sys.argv[1], sys.argv[2], kind=sys.argv[3], batch_rows=50, say=lambda text: print(text, flush=True))
"""


class StopError(Exception):
    """Raised in place of a kill."""


def stop_at(line):
    """Return a progress callback that raises at one of its calls."""
    seen = []

    def say(text):
        seen.append(text)
        if len(seen) == line:
            raise StopError

    return say


def files(store):
    return {path.name: path.read_bytes() for path in store.iterdir() if path.suffix == ".npy"}


@each
def test_bytes_do_not_depend_on_chunks_memory_or_threads(kind, tmp_path):
    rows, run = TABLES[kind](500), partial(prepare, kind=kind)
    rows.to_parquet(tmp_path / "e.parquet")
    (tmp_path / "cut").mkdir()
    for i in range(5):
        rows.iloc[100 * i : 100 * i + 100].to_parquet(tmp_path / "cut" / f"{i}.parquet")
    run(tmp_path / "e.parquet", tmp_path / "a")
    run(tmp_path / "e.parquet", tmp_path / "b", memory="600MiB", threads=1, batch_rows=64)
    run(tmp_path / "cut", tmp_path / "c", threads=2)
    assert files(tmp_path / "a") == files(tmp_path / "b") == files(tmp_path / "c")


@each
def test_an_interrupted_preparation_resumes_to_the_same_bytes(kind, tmp_path):
    TABLES[kind](600).to_parquet(tmp_path / "e.parquet")
    run = partial(prepare, tmp_path / "e.parquet", kind=kind, batch_rows=150)
    run(tmp_path / "whole")
    for line in (2, 4):
        store = tmp_path / f"stopped-{line}"
        with pytest.raises(StopError):
            run(store, say=stop_at(line))
        with pytest.raises(FormatError):
            READERS[kind](store)
        run(store)
        assert files(store) == files(tmp_path / "whole")


@pytest.mark.slow
@each
@pytest.mark.parametrize("kills", [(6, 13), tuple(range(1, 17))], ids=["some", "many"])
def test_a_kill_at_any_time_changes_no_byte(kind, kills, tmp_path):
    source, store = tmp_path / "e.parquet", tmp_path / "s"
    TABLES[kind](600).to_parquet(source)
    prepare(source, tmp_path / "whole", kind=kind, batch_rows=50)
    for lines in kills:
        child = subprocess.Popen([sys.executable, "-c", CHILD, source, store, kind], stdout=subprocess.PIPE, text=True)
        for _ in range(lines):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        if not any((store / name).exists() for name in ("events.json", "graph.json")):
            with pytest.raises(FormatError):
                READERS[kind](store)
    prepare(source, store, kind=kind, batch_rows=50)
    assert files(store) == files(tmp_path / "whole")


@pytest.mark.slow
def test_a_full_disk_keeps_finished_parts(tmp_path):
    source, store = tmp_path / "source", tmp_path / "s"
    source.mkdir()
    for place, (start, end) in enumerate([(0, 40), (40, 80), (80, 600)]):
        frame(600)[start:end].to_parquet(source / f"{place}.parquet")
    prepare(source, tmp_path / "whole")
    limited = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limited += "resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))\n" + CHILD.replace("batch_rows=50, ", "")
    words = [sys.executable, "-c", limited, str(source), str(store), "events"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode
    assert len(list((store / "work").glob("rows-*.json"))) == 2
    messages = []
    prepare(source, store, say=messages.append)
    assert sum("rows read" in text for text in messages) == 1
    assert files(store) == files(tmp_path / "whole")
