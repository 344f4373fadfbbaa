"""TGB's archives: events from the zip, nothing unpickled; numbers of negatives as in TGB; URLs of py-tgb 2.3.0."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from hopstate.data.events import EventStream
from hopstate.data.readers.read_events import read_events
from hopstate.data.splits import chronological_split
from hopstate.datasets.registry import find_dataset, load_dataset, on_disk
from hopstate.errors import ConfigError, DataError, FormatError
from hopstate.runs.reproduce import all_recipes
from hopstate.sampling.negatives import one_against_many

WIKI = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n" + "".join(
    f"{i % 3},{i % 4},{10.0 * i},0,{i / 10},{-i}\n" for i in range(20)
)
COIN = "time,src,dst,weight\n" + "".join(f"{1648811421 + i},0xa{i % 3},0xb{i % 5},{800.0 + i}\n" for i in range(20))


def archive(path: Path, member: str, text: str, **more: str) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(member, text)
        made.writestr("tgbl_x/tgbl-x_val_ns_v2.pkl", b"cos\nsystem\n(S'exit 1'\ntR.")  # executes code if loaded
        for name, content in more.items():
            made.writestr(name, content)
    return path


def test_wiki_is_read_in_jodies_order(tmp_path):
    stream = read_events(archive(tmp_path / "tgbl-wiki-v2.zip", "tgbl_wiki/tgbl-wiki_edgelist_v2.csv", WIKI))
    assert (len(stream), stream.num_nodes, stream.time_unit, stream.name) == (20, 7, "s", "tgbl-wiki")
    assert stream.t.tolist() == [10.0 * i for i in range(20)]
    assert stream.src.tolist() == [i % 3 for i in range(20)]
    assert stream.dst.tolist() == [3 + i % 4 for i in range(20)]
    np.testing.assert_allclose(stream.edge_attr[:, 1], -np.arange(20))
    assert stream.labels is not None


def test_coin_is_read_by_its_columns_without_its_weights(tmp_path):
    path = archive(tmp_path / "tgbl-coin-v2.zip", "tgbl-coin_edgelist_v2.csv", COIN)
    stream = read_events(path)
    assert (len(stream), stream.num_nodes, stream.edge_attr) == (20, 8, None)
    assert stream.node_ids.names(stream.src[:3]).tolist() == ["0xa0", "0xa1", "0xa2"]
    assert stream.t[0] == 1648811421
    assert read_events(path, edge_columns=("weight",)).edge_attr.shape == (20, 1)


def test_other_archives_are_rejected(tmp_path):
    with pytest.raises(FormatError, match="_edgelist"):
        read_events(archive(tmp_path / "a.zip", "events.csv", COIN))
    with pytest.raises(FormatError):
        read_events(archive(tmp_path / "b.zip", "tgbl-a_edgelist.csv", COIN, **{"tgbl-b_edgelist.csv": COIN}))
    (tmp_path / "c.zip").write_bytes((tmp_path / "a.zip").read_bytes()[:60])
    with pytest.raises(FormatError):
        read_events(tmp_path / "c.zip")
    with pytest.raises(ConfigError, match="time_column"):
        read_events(archive(tmp_path / "d.zip", "tgbl-wiki_edgelist_v2.csv", WIKI), time_column="timestamp")


@pytest.mark.parametrize("name", ["tgbl-wiki", "tgbl-coin"])
def test_the_catalogue_has_the_current_address_and_uses_the_cached_file(name, tmp_path, monkeypatch):
    entry = find_dataset(name)
    assert entry.address.startswith("https://object-arbutus.alliancecan.ca/swift/v1/")
    assert entry.address.endswith(f"/tgb/{name}-v2.zip")
    monkeypatch.setenv("HOPSTATE_DATA", str(tmp_path))
    assert on_disk(entry) == "no"
    (tmp_path / "temporal").mkdir()
    text = WIKI if name == "tgbl-wiki" else COIN
    archive(tmp_path / "temporal" / f"{name}-v2.zip", f"{name}_edgelist_v2.csv", text)
    assert on_disk(entry) == "yes"
    assert (len(load_dataset(name)), load_dataset(name).name) == (20, name)


def _stream() -> EventStream:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 6, 200), 6 + rng.integers(0, 9, 200)
    return EventStream(src=src, dst=dst, t=np.sort(rng.integers(0, 60, 200)))


@pytest.mark.parametrize("part", ["val", "test"])
def test_all_negatives_are_every_destination_without_a_positive_at_the_time(part):
    stream = _stream()
    split = chronological_split(stream)
    drawn = one_against_many(stream, split, part, num_negatives="all")
    pool = set(stream.dst.tolist())
    for i, row in enumerate(drawn.rows):
        positives = stream.dst[(stream.src == stream.src[row]) & (stream.t == stream.t[row])]
        negatives = drawn.dst[drawn.offsets[i] : drawn.offsets[i + 1]]
        assert len(negatives) == len(set(negatives.tolist()))
        assert set(negatives.tolist()) == pool - set(positives.tolist())


def test_too_many_negatives_are_rejected(monkeypatch):
    monkeypatch.setattr("hopstate.sampling.negatives.MAX_NEGATIVES", 20)
    with pytest.raises(DataError, match=r"evaluation\.num_negatives"):
        one_against_many(_stream(), chronological_split(_stream()), num_negatives="all")


def test_recipes_with_published_results_use_tgbs_numbers_of_negatives():
    expected = {"tgbl-wiki": "all", "tgbl-coin": 20}
    found = [r for r in all_recipes().values() if r.data in expected]
    assert len(found) == 3
    for recipe in found:
        assert recipe.settings["evaluation.num_negatives"] == expected[recipe.data], recipe.name
