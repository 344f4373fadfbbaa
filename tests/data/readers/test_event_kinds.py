"""Event kinds of a table: a column named kind with any content, and deleted nodes."""

import pandas as pd
import pytest

from hopstate.data.events import GONE
from hopstate.data.readers.read_events import read_events
from hopstate.errors import DataError


def test_a_column_named_kind_may_hold_anything():
    plain = pd.DataFrame({"src": [0, 1, 2, 0], "dst": [3, 4, 3, 5], "t": [0, 1, 2, 3]})
    texts = plain.assign(kind=["mail", "call", "mail", "call"])
    events = read_events(texts)
    assert events.kind is None
    assert any("kind" in note for note in events.notes)
    for options in ({"columns": ["kind=category"]}, {"edge_columns": ["kind"]}):
        assert read_events(texts, **options).edge_table.columns[0] == "category kind=call"
    codes = plain.assign(op=[3, 4, 5, 3])
    assert read_events(codes).kind is None
    mixed = plain.assign(kind=["add", "call", "mail", "call"])
    with pytest.raises(DataError, match="kind"):
        read_events(mixed)
    assert read_events(mixed, columns=["kind=category"]).kind is None
    assert read_events(mixed, columns=["kind=drop"]).edge_attr is None
    with pytest.raises(DataError):  # the given column has the kinds
        read_events(texts, kind_column="kind")
    both = texts.assign(op=["add", "add", "delete", "add"])
    assert read_events(both.assign(src=[0, 1, 0, 0]), columns=["kind=category"]).kind.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize(("ids", "text_ids"), [(("007", "012"), False), (("007", "012"), True), (("1.0", "1e5"), True)])
def test_a_deleted_node_is_written_as_its_own_target(tmp_path, ids, text_ids):
    a, b = ids
    path = tmp_path / "events.csv"
    path.write_text(f"src,dst,t,kind\n{a},{b},1,add\n{b},,2,delete\n{a},,3,delete\n")
    stream = read_events(path, text_ids=text_ids, from_start=False)  # if earlier edges are unknown
    gone = stream.kind == GONE
    named = [stream.node_ids.ids[rows[gone]].tolist() for rows in (stream.src, stream.dst)]
    assert named == [[b, a], [b, a]]
