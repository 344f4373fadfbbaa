"""Codes of ids are those that a dictionary of Python gives, whatever the bytes, where hashes fall together too."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopstate.data.prepare.id_table import IdTable, Packed, packed

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)
close = st.sampled_from(["12345678", "12345679", "1234567", "123456781", "1234567812345678", "1234567812345679"])
pieces = st.lists(st.lists(texts | close, max_size=60), max_size=5)
numbers = st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3), max_size=60), max_size=5)


def check(all_pieces, kind, cut=0):
    table, known = IdTable(), {}
    for piece in all_pieces:
        ids = pa.array(piece, kind)[cut:]
        before = len(known)
        expected = [known.setdefault(one, len(known)) for one in ids.to_pylist()]
        codes, fresh = table.enter(packed(ids))
        assert codes.tolist() == expected
        assert ids.take(fresh).to_pylist() == list(known)[before:]
    assert table.count == len(known)


@settings(max_examples=50, deadline=None)
@given(pieces, st.integers(0, 3))
def test_texts_have_the_codes_of_a_dictionary(some, cut):
    check(some, pa.string(), cut)


@settings(max_examples=25, deadline=None)
@given(numbers, st.integers(0, 3))
def test_numbers_have_the_codes_of_a_dictionary(some, cut):
    check(some, pa.int64(), cut)


@pytest.mark.parametrize("size", [3, 9, 30])
def test_a_table_grows_over_many_pieces(size):
    r = np.random.default_rng(size)
    check([[f"{n:0{size}}" for n in r.integers(0, 900, 400)] for _ in range(40)], pa.string())


def test_ids_whose_hashes_are_all_alike_are_told_apart():
    ids = pa.array([f"n{i}" for i in range(300)] * 2)
    real = packed(ids)
    for one in (0, 2**64 - 1, 12345):
        table = IdTable()
        codes, fresh = table.enter(Packed(real.words, real.starts, np.full(600, one, np.uint64)))
        assert codes.tolist() == [*range(300), *range(300)]
        assert fresh.tolist() == list(range(300))


def test_words_hold_the_bytes_of_texts():
    ids = pa.array(["a", "12345678", "é" * 9])
    made = packed(ids)
    assert made.starts.tolist() == [0, 1, 2, 5]
    assert made.words[:5].tobytes() == b"".join(
        one.encode().ljust(-(-len(one.encode()) // 8) * 8, b"\0") for one in ids.to_pylist()
    )
    assert len(set(made.hashes.tolist())) == 3
