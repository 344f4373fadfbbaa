"""Pieces brought to the folder of work: bad rows apart, the same by any number of threads, errors told."""

import pyarrow as pa
import pyarrow.parquet
import pytest

from hopstate.data.prepare.layout import files_of, layouts
from hopstate.data.prepare.pieces import pieces_of
from hopstate.data.prepare.stage import PieceFiles, stage
from hopstate.data.prepare.staging import staged
from hopstate.errors import FormatError


def test_an_id_with_a_line_in_it_is_a_bad_row(tmp_path):
    rows = [("a", "b", 1), ("a\nc", "b", 2), ("", "b", 3), ("a\0", "b", 4), ("é", "b", 5)]
    table = pa.table([[row[i] for row in rows] for i in range(3)], ["src", "dst", "t"])
    pa.parquet.write_table(table, tmp_path / "e.parquet")
    found, columns, *_ = layouts(files_of(tmp_path / "e.parquet"), {}, False)
    piece = next(pieces_of(found[0], columns, 100))
    made = staged(found[0], columns, piece)
    assert made.ids[0].to_pylist() == ["a", "é"]
    assert [why for _, why, _ in made.bad] == ["no usable id in column 'src'"] * 3


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_pieces_are_the_same_by_any_number_of_threads(tmp_path, threads):
    table = pa.table({"src": [f"u{i % 7}" for i in range(50)], "dst": [f"v{i % 5}" for i in range(50)], "t": range(50)})
    pa.parquet.write_table(table, tmp_path / "e.parquet")
    (layout,), columns, *_ = layouts(files_of(tmp_path / "e.parquet"), {}, False)
    made = {}
    for name, many in (("one", 1), ("some", threads)):
        (tmp_path / name).mkdir()
        assert stage(layout, columns, 8, PieceFiles(tmp_path / name, 0), many, lambda text: None) == 7
        made[name] = {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
    assert made["one"] == made["some"]
    assert len(made["one"]) == 7 * 3


def test_an_error_in_a_thread_is_told_and_pieces_before_it_stay(tmp_path, monkeypatch):
    table = pa.table({"src": ["a"] * 40, "dst": ["b"] * 40, "t": range(40)})
    pa.parquet.write_table(table, tmp_path / "e.parquet")
    (layout,), columns, *_ = layouts(files_of(tmp_path / "e.parquet"), {}, False)

    def broken(layout, columns, piece):
        if piece.rows[0] == 16:
            raise FormatError("damaged")
        return staged(layout, columns, piece)

    monkeypatch.setattr("hopstate.data.prepare.stage.staged", broken)
    (tmp_path / "work").mkdir()
    with pytest.raises(FormatError, match="damaged"):
        stage(layout, columns, 8, PieceFiles(tmp_path / "work", 0), 2, lambda text: None)
    done = sorted(path.name for path in (tmp_path / "work").glob("*.json"))
    assert done[:2] == ["00000-000000.json", "00000-000001.json"]
    assert "00000-000002.json" not in done
