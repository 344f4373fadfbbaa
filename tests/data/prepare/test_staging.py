"""Pieces brought to the folder of work: bad rows apart, the same by any number of threads, errors told."""

import pyarrow as pa
import pyarrow.parquet
import pytest

from hopstate.data.dates import UNGUESSED
from hopstate.data.prepare import prepare
from hopstate.data.prepare.layout import files_of, layouts
from hopstate.data.prepare.numbering import Numbering, logged
from hopstate.data.prepare.pieces import pieces_of
from hopstate.data.prepare.stage import PieceFiles, stage
from hopstate.data.prepare.staging import staged
from hopstate.errors import DataError, FormatError


def test_an_id_with_a_line_in_it_is_a_bad_row(tmp_path):
    rows = [("a", "b", 1), ("a\nc", "b", 2), ("", "b", 3), ("a\0", "b", 4), ("é", "b", 5)]
    table = pa.table([[row[i] for row in rows] for i in range(3)], ["src", "dst", "t"])
    pa.parquet.write_table(table, tmp_path / "e.parquet")
    found, columns, *_ = layouts(files_of(tmp_path / "e.parquet"), {}, False)
    piece = next(pieces_of(found[0], columns, 100))
    numbering = Numbering(tmp_path, 1 << 20)
    made = staged(found[0], columns, piece, numbering)
    assert made.columns["src"].tolist() == [0, 1]
    assert pa.parquet.read_table(logged(tmp_path)[0].path)["id"].to_pylist() == ["a", "é"]
    assert [why for _, why, _ in made.bad] == ["no usable id in column 'src'"] * 3


def test_dates_of_either_order_are_bad_rows_that_say_so(tmp_path):
    source = tmp_path / "e.csv"
    source.write_text("src,dst,t\na,b,01/02/2026\nb,c,2026-02-02\nc,a,soon\na,c,3.2.26 12:00\nb,a,\n")
    found, columns, *_ = layouts(files_of(source), {}, False)
    made = staged(found[0], columns, next(pieces_of(found[0], columns, 100)), Numbering(tmp_path, 1 << 20))
    assert made.columns["t"].tolist() == [1_769_990_400 * 10**9]
    plain = "no usable time in column 't'"
    assert [why for _, why, _ in made.bad] == [f"{plain}: the {UNGUESSED}", plain, f"{plain}: the {UNGUESSED}", plain]
    source.write_text("src,dst,t\na,b,01/02/2026\n")
    with pytest.raises(DataError, match="01/02/2026"):
        prepare(source, tmp_path / "store")


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_pieces_hold_the_same_ids_by_any_number_of_threads(tmp_path, threads):
    table = pa.table({"src": [f"u{i % 7}" for i in range(50)], "dst": [f"v{i % 5}" for i in range(50)], "t": range(50)})
    pa.parquet.write_table(table, tmp_path / "e.parquet")
    (layout,), columns, *_ = layouts(files_of(tmp_path / "e.parquet"), {}, False)
    numbering = Numbering(tmp_path, 1 << 20)
    assert stage(layout, columns, 8, PieceFiles(tmp_path, 0), numbering, threads, lambda text: None) == 7
    ids = [pa.concat_tables(pa.parquet.read_table(o.path) for o in logged(tmp_path) if o.side == s) for s in (0, 1)]
    made = pa.concat_tables(pa.parquet.read_table(path, columns=["src", "dst", "t"], partitioning=None)
                            for path in sorted(tmp_path.glob("*.events")))  # fmt: skip
    for name, known in zip(("src", "dst"), ids):
        assert known["code"].to_pylist() == list(range(len(known)))
        assert known["id"].take(made[name]).to_pylist() == table[name].to_pylist()
    assert made["t"].to_pylist() == list(range(50))


def test_an_error_in_a_thread_is_told_and_pieces_before_it_stay(tmp_path, monkeypatch):
    table = pa.table({"src": ["a"] * 40, "dst": ["b"] * 40, "t": range(40)})
    pa.parquet.write_table(table, tmp_path / "e.parquet")
    (layout,), columns, *_ = layouts(files_of(tmp_path / "e.parquet"), {}, False)

    def broken(layout, columns, piece, numbering):
        if piece.rows[0] == 16:
            raise FormatError("damaged")
        return staged(layout, columns, piece, numbering)

    monkeypatch.setattr("hopstate.data.prepare.stage.staged", broken)
    (tmp_path / "work").mkdir()
    with pytest.raises(FormatError):
        stage(
            layout,
            columns,
            8,
            PieceFiles(tmp_path / "work", 0),
            Numbering(tmp_path / "work", 1 << 20),
            2,
            lambda text: None,
        )
    done = sorted(path.name for path in (tmp_path / "work").glob("*.json"))
    assert done[:2] == ["00000-000000.json", "00000-000001.json"]
    assert "00000-000002.json" not in done
