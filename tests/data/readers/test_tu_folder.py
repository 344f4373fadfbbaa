"""Folders of TU collections are read as graph sets, and inconsistent files are named."""

from pathlib import Path

import numpy as np
import pytest

import hopstate
from hopstate.data.readers.read_graph import read_graph_set
from hopstate.errors import FormatError, HopstateError, MissingFileError

FILES = {  # a path of three nodes, an edge, an isolated node
    "A": "1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n",
    "graph_indicator": "1\n1\n1\n2\n2\n3\n",
    "graph_labels": "-1\n1\n-1\n",
    "node_labels": "7\n5\n7\n5\n5\n7\n",
    "node_attributes": "0.5, 1\n1.5, 2\n2.5, 3\n3.5, 4\nnan, 5\n5.5, 6\n",
    "edge_labels": "0\n0\n1\n1\n0\n0\n",
    "edge_attributes": "0.1\n0.1\n0.2\n0.2\n0.3\n0.3\n",
}


def write(folder: Path, **changes: str | None) -> Path:
    folder.mkdir(exist_ok=True)
    for what, text in {**FILES, **changes}.items():
        if text is not None:
            (folder / f"TOY_{what}.txt").write_text(text)
    return folder


def test_a_folder_becomes_packed_graphs(tmp_path: Path) -> None:
    graphs = read_graph_set(str(write(tmp_path / "toy")))
    assert (graphs.name, graphs.num_graphs, graphs.offsets.tolist()) == ("TOY", 3, [0, 3, 5, 6])
    assert graphs.y.tolist() == [0, 1, 0]
    assert graphs.class_names == ("-1", "1")
    union = graphs.union
    assert union.table.columns == ("tag 5", "tag 7", "attribute 0", "attribute 1")
    assert union.table.values[:, 0].tolist() == [0, 1, 0, 1, 1, 0]
    assert union.table.values[[0, 5], 2].tolist() == [0.5, 5.5]
    assert np.isnan(union.table.values[4, 2])
    assert union.edge_table.columns == ("tag 0", "tag 1", "attribute 0")
    ends = list(zip(*union.edge_index().tolist(), strict=True))
    assert ends == [(0, 1), (1, 0), (1, 2), (2, 1), (3, 4), (4, 3)]
    assert union.edge_attr[:, 2].tolist() == pytest.approx([0.1, 0.1, 0.2, 0.2, 0.3, 0.3])
    assert read_graph_set(str(tmp_path / "toy" / "TOY_A.txt")).content_hash == graphs.content_hash
    (tmp_path / "outer").mkdir()
    (tmp_path / "toy").rename(tmp_path / "outer" / "raw")  # as torch-geometric unpacks it
    assert read_graph_set(str(tmp_path / "outer")).content_hash == graphs.content_hash


def test_targets_are_classes_or_regression_values(tmp_path: Path) -> None:
    amounts = "1.5, 2\nnan, 3\n0.25, 4\n"
    both = read_graph_set(str(write(tmp_path / "both", graph_attributes=amounts)))
    assert both.y.tolist() == [0, 1, 0]
    assert any("2" in note for note in both.union.notes)
    values = read_graph_set(str(write(tmp_path / "values", graph_attributes=amounts, graph_labels=None)))
    assert values.y.dtype == np.float32
    np.testing.assert_array_equal(values.y, np.array([[1.5, 2], [np.nan, 3], [0.25, 4]], np.float32))
    one = read_graph_set(str(write(tmp_path / "one", graph_attributes="1\n2\n3\n", graph_labels=None)))
    assert one.y.shape == (3,)
    assert read_graph_set(str(write(tmp_path / "none", graph_labels=None))).y is None


def test_degrees_replace_missing_features(tmp_path: Path) -> None:
    graphs = read_graph_set(str(write(tmp_path / "toy", node_labels=None, node_attributes=None)))
    assert graphs.num_features == 5
    assert graphs.union.notes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"A": "1, 2\n2, 7\n"}, r"TOY_A\.txt.*line 2"),
        ({"A": "0, 1\n"}, r"TOY_A\.txt.*line 1"),
        ({"A": "1, 2\n3, 4\n"}, r"TOY_A\.txt.*line 2"),
        ({"A": "1, 2\n2, 1.5\n"}, r"TOY_A\.txt.*line 2"),
        ({"A": "1, 2\n2\n3, 4, 5\n"}, r"TOY_A\.txt.*line 2"),
        ({"A": "1, 2\nx, 1\n"}, r"TOY_A\.txt.*line 2"),
        ({"A": "1 2\n"}, r"TOY_A\.txt.*line 1"),
        ({"graph_indicator": ""}, r"TOY_graph_indicator\.txt"),
        ({"graph_indicator": "1\n1\n2\n1\n2\n3\n"}, "line 4"),
        ({"graph_indicator": "1\n1\n1\n3\n3\n4\n"}, "line 4"),
        ({"graph_indicator": "0\n0\n0\n1\n1\n2\n"}, "line 1"),
        ({"graph_indicator": "1\n1\n1\n2\n2\n1e300\n"}, "line 6"),
        ({"graph_labels": "1\n2\n"}, r"TOY_graph_labels\.txt"),
        (
            {"graph_labels": "1\n2.5\n1\n"},
            "line 2",
        ),
        ({"graph_labels": "1\n2\n1, 2\n"}, r"TOY_graph_labels\.txt.*line 3"),
        ({"graph_attributes": "1\n"}, r"TOY_graph_attributes\.txt"),
        ({"node_labels": "1\n"}, r"TOY_node_labels\.txt"),
        ({"node_labels": "1\n1\n1\n1\n1\n0.5\n"}, r"TOY_node_labels\.txt.*line 6"),
        ({"node_attributes": "1\n2\n3\n4\n5\n"}, r"TOY_node_attributes\.txt"),
        ({"node_attributes": "1\n2\n3\n\n5\n6\n"}, r"TOY_node_attributes\.txt.*line 4"),
        ({"edge_labels": "1\n2\n"}, r"TOY_edge_labels\.txt"),
        ({"edge_attributes": "1\n" * 7}, r"TOY_edge_attributes\.txt"),
    ],
)
def test_inconsistent_files_are_named(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read_graph_set(str(write(tmp_path / "toy", **changes)))


def test_folders_with_no_or_several_datasets_are_rejected(tmp_path: Path) -> None:
    folder = write(tmp_path / "toy", graph_indicator=None)
    with pytest.raises(MissingFileError, match="TOY_graph_indicator"):
        read_graph_set(str(folder))
    (folder / "B_A.txt").write_text("1, 2\n")
    with pytest.raises(MissingFileError, match=r"B_A.*TOY_A"):
        read_graph_set(str(folder))
    (tmp_path / "empty").mkdir()
    with pytest.raises(HopstateError):
        read_graph_set(str(tmp_path / "empty"))


@pytest.mark.parametrize("what", FILES)
def test_a_corrupted_file_is_read_or_rejected_by_name(what: str, tmp_path: Path) -> None:
    rng, folder = np.random.default_rng(1), write(tmp_path / "toy")
    file, good, read, errors = folder / f"TOY_{what}.txt", FILES[what].encode(), 0, list[str]()
    damaged = [
        good[: len(good) // 2],
        b"",
        b"\n",
        b"\0" * 9,
        b"\xff\xfe" + good,
        good * 2,
        good + b"9" * 5000,
        good[:-1] + b",",
    ]
    damaged += [
        good.replace(b"1", bad) for bad in (b"-1", b"1e999", b"nan", b"0x1", b"1_0", b"\xd9\xa1", b" ", b"\r\n1")
    ]
    for _ in range(150):
        data = bytearray(good)
        for at in rng.integers(0, len(data), rng.integers(1, 4)):
            data[at] = rng.choice(np.frombuffer(b"0123456789,.\n -e\xff\0", np.uint8))
        damaged.append(bytes(data))
    for data in damaged:
        file.write_bytes(data)
        try:
            graphs = read_graph_set(str(folder))
        except HopstateError as error:
            errors.append(str(error))
        else:
            read += 1
            assert graphs.num_nodes == 6
            assert all(end in range(6) for end in graphs.union.indices.tolist())
    assert read
    assert all("TOY_" in message for message in errors)


def test_a_model_trains_on_a_folder(tmp_path: Path) -> None:
    rng, count = np.random.default_rng(0), 40
    edges, indicator = [], []
    for graph in range(count):
        first, size = len(indicator) + 1, int(rng.integers(3, 8))
        indicator += [graph + 1] * size
        edges += [(first + i, first + (i + 1) % size) for i in range(size if graph % 2 else size - 1)]
    folder = write(
        tmp_path / "toy", A="".join(f"{u}, {v}\n" for u, v in edges), edge_labels=None, edge_attributes=None,
        graph_indicator="".join(f"{g}\n" for g in indicator), node_attributes=None,
        graph_labels="".join(f"{g % 2}\n" for g in range(count)), node_labels="1\n" * len(indicator),
    )  # fmt: skip
    run = hopstate.fit(
        "gin-graphs",
        str(folder),
        out=tmp_path / "run",
        config={"loop.epochs": 2, "loop.progress": False, "model.dim": 4},
    )
    assert set(run.predict(str(folder), split="all").columns) >= {"graph", "p_0", "p_1"}
