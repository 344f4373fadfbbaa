"""Rows of ids: few ids, which are searched one by one, give the same rows as many."""

import pickle

import numpy as np
import pytest

from hopstate.data.vocabulary import Vocabulary
from hopstate.errors import DataError

TEXTS = np.array([f"u{i}" for i in range(100)])


@pytest.mark.parametrize(
    ("ids", "keys"),
    [
        (TEXTS, np.array(["u3", "absent", "u99", "3", ""])),
        (TEXTS, np.array([3, 4])),
        (np.arange(100) * 7, np.array([14, 15, -1, 2**62, 693])),
        (np.arange(100) * 7, np.array(["14", "x"])),
        (np.arange(100) * 7, np.array([14.0, 14.5])),
        (np.arange(100) * 7, np.array([True, False])),
        (np.arange(100) * 7, np.empty(0, np.int64)),
    ],
)
def test_few_and_many_ids_are_found_alike(ids: np.ndarray, keys: np.ndarray) -> None:
    known = Vocabulary(ids)
    many = np.concatenate([keys] * (32 + 1))
    found = known.rows(keys)
    assert found.dtype == np.int64
    assert found.tolist() == known.rows(many)[: len(keys)].tolist()


@pytest.mark.parametrize("piece", [1, 2, 3, 1 << 20])
@pytest.mark.parametrize("kind", [np.int64, "U3"])
def test_a_repeated_id_is_found_anywhere(piece: int, kind, monkeypatch) -> None:
    monkeypatch.setattr("hopstate.io.scratch.BLOCK", piece)
    for count in range(6):
        ids = np.arange(count).astype(kind)
        for order in (ids, ids[::-1]):
            known = Vocabulary(order)
            assert known.rows(ids).tolist() == np.argsort(order).tolist()
        for at in range(1, count):
            for order in (np.insert(ids, at, ids[at - 1]), np.insert(ids, at, ids[0])):
                with pytest.raises(DataError):
                    Vocabulary(order)


def test_integers_are_found_in_any_order() -> None:
    for ids in (np.arange(5), np.arange(5)[::-1]):
        assert Vocabulary(ids).rows(np.arange(9) - 2).tolist() == [-1, -1, *ids.tolist(), -1, -1]


@pytest.mark.parametrize("kind", ["ints", "texts"])
def test_a_grown_vocabulary_keeps_the_rows_of_its_predecessor(kind: str) -> None:
    names = [7, 3, 11, 5] if kind == "ints" else ["u", "a", "long one", "b"]
    first, other = Vocabulary(np.array(names[:2])), Vocabulary(np.array(names[:2]))
    grown, rows = first.grown([names[1], names[2], names[2]])
    assert rows.tolist() == [1, 2, 2]
    assert grown.ids.tolist() == Vocabulary(np.array(names[:3])).ids.tolist()
    assert grown.rows(names).tolist() == [0, 1, 2, -1]
    assert (grown.is_of(first), grown.is_of(grown), first.is_of(first)) == (True, True, True)
    assert not any((first.is_of(grown), grown.is_of(other), other.is_of(first), grown.is_of(None)))
    again = grown.grown([names[3]])[0]
    assert (again.is_of(first), again.is_of(grown)) == (True, True)
    assert (grown.rows(names).tolist(), again.rows(names).tolist()) == ([0, 1, 2, -1], [0, 1, 2, 3])
    assert again.names(np.array([3, 0, 2])).tolist() == [names[3], names[0], names[2]]
    assert not first.grown([names[3]])[0].is_of(grown)
    assert first.grown(names[:2])[0] is first
    copy = pickle.loads(pickle.dumps(grown))
    assert copy.rows(names).tolist() == [0, 1, 2, -1]
    assert not copy.is_of(pickle.loads(pickle.dumps(first)))


def test_a_long_id_does_not_widen_the_others() -> None:
    names = [f"n{k}" for k in range(20_000)] + ["é" * 500]
    known = Vocabulary(names)
    offsets, data = known.parts()
    assert len(data) + offsets.nbytes < 400_000
    assert known.rows(names[::-1]).tolist() == list(range(20_001))[::-1]
    with pytest.raises(DataError, match=r"1,000 bytes.*row 2"):
        Vocabulary(["a", "b", "x" * 1001])


def test_parts_round_trip_and_damaged_parts_are_rejected() -> None:
    known = Vocabulary(["b", "é", "", "abc"])
    offsets, data = known.parts()
    assert Vocabulary.from_parts(offsets, data).ids.tolist() == ["b", "é", "", "abc"]
    for bad in (offsets[::-1].copy(), offsets + 7, offsets.astype(np.int32), offsets[:0]):
        with pytest.raises(DataError):
            Vocabulary.from_parts(bad, data)
    with pytest.raises(DataError):
        Vocabulary.from_parts(np.array([0, 1, 2, 2, 6]), data)  # splits a character


@pytest.mark.parametrize("ids", [["b", "a", "c"], [7, 3, 9]], ids=["texts", "numbers"])
def test_rows_and_names_keep_the_shape_of_pairs(ids: list[str] | list[int]) -> None:
    vocabulary, pairs = Vocabulary(np.array(ids)), np.array([[0, 2], [1, 1]])
    names = vocabulary.names(pairs)
    assert names.tolist() == [[ids[0], ids[2]], [ids[1], ids[1]]]
    assert vocabulary.rows(names).tolist() == pairs.tolist()


def test_names_of_rows_are_as_wide_as_each_text() -> None:
    ids = ["x" * 1000, *(f"n{i}" for i in range(1000))]
    known = Vocabulary(ids).followed_by([f"m{i}" for i in range(1000)])
    names = known.names(np.arange(len(known)))
    assert names.nbytes <= 8 * len(known)
    assert known.rows(names).tolist() == list(range(len(known)))
