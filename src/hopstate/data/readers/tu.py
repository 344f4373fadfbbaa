"""Graph sets in the text format of the TU collections as DGCNN and GIN publish them.

First line: number of graphs. Then per graph a line "n label", and per node a line "tag degree neighbour neighbour ...
[attribute ...]", neighbours counted from 0 within the graph. Labels and tags are any integers; tags become one-hot
features.

Source: Zhang et al. 2018 (DGCNN), github.com/muhanzhang/pytorch_DGCNN.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hopstate.data.graph import Graph, Keep
from hopstate.data.graph_set import GraphSet, folds
from hopstate.data.preprocessing import TAG, FeatureTable
from hopstate.data.readers.notes import notes_of_list
from hopstate.errors import FormatError, MissingFileError
from hopstate.io.opening import check_size, exists, is_file, open_regular, read_text


def read_tu(
    path: str | Path,
    *,
    fold_folder: str | Path | None = None,
    num_folds: int = 10,
    undirected: bool = True,
    duplicates: Keep = "drop",
    self_loops: Keep = "keep",
    table: bool = False,
) -> GraphSet:
    """Return the graphs of a TU text file.

    Args:
        path: the file, NAME.txt.
        fold_folder: folder with NAME-train_idx-K.txt and NAME-test_idx-K.txt, K = 1..num_folds; by default "10fold"
            beside the file where it is there.
        num_folds: folds to read.
        undirected: store every edge in both directions, whichever of its ends lists the other.
        duplicates, self_loops: see `Graph.from_edges`.
        table: keep the features' names ("tag 3", "attribute 0") with them, so that they are scaled, and matched by name
            where other graphs are read for a trained model.

    Raises:
        MissingFileError: no such file, or a fold is missing.
        FormatError: not such a file, or truncated; the message names the line.
    """
    path = Path(path)
    lines = read_text(path).split("\n")
    where, at, first = str(path), 1, 0
    graphs = _whole(lines, 0, where)
    if len(graphs) != 1 or graphs[0] < 1:
        raise FormatError(f"{where}, line 1: expected the number of graphs, got {lines[0][:60]!r}")
    sizes: list[int] = []
    labels, tags, attributes, edges = [], [], [], []
    for _ in range(graphs[0]):
        head = _whole(lines, at, where)
        if len(head) != 2 or head[0] < 1:
            raise FormatError(f"{where}, line {at + 1}: expected 'nodes label' of a graph, got {lines[at][:60]!r}")
        size = head[0]
        for v in range(size):
            tag, neighbours, rest = _node(lines, at + 1 + v, size, where)
            tags.append(tag)
            attributes.append(rest)
            edges += [(first + v, first + u) for u in neighbours]
        sizes.append(size)
        labels.append(head[1])
        at, first = at + size + 1, first + size
    left = next((number for number in range(at, len(lines)) if lines[number].strip()), None)
    if left is not None:
        raise FormatError(
            f"{where}, line 1 says {graphs[0]} graphs, but line {left + 1} goes on with {lines[left][:60]!r}; correct "
            "the number or remove what is left over"
        )
    names, y = np.unique(np.array(labels, np.int64), return_inverse=True)
    build: dict[str, Any] = {"undirected": undirected, "duplicates": duplicates, "self_loops": self_loops}
    columns, x = _features(np.array(tags, np.int64), attributes, where)
    pairs = np.array(edges, np.int64).reshape(-1, 2)
    union = Graph.from_edges(
        pairs, sum(sizes), **build, name=path.stem, source=where, x=x,
        table=FeatureTable(columns, x) if table else None,
        notes=notes_of_list(pairs, sum(sizes), build),
    )  # fmt: skip
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    masks = read_folds(path, fold_folder, num_folds, len(sizes))
    class_names = tuple(str(n) for n in names)
    return GraphSet(union=union, offsets=offsets, y=y.astype(np.int64), masks=masks, class_names=class_names)


def is_tu_text(path: str | Path) -> bool:
    """Return whether a text file begins as one of these does: a line of one whole number, then one of two."""
    if not is_file(path):
        return False
    with open_regular(path) as file:
        lines = file.read(200).decode(errors="replace").split("\n")
    return len(lines) > 2 and all(len(_ints(line)) == n for line, n in zip(lines, (1, 2), strict=False))


def _ints(line: str) -> list[str]:
    words = line.split()
    return words if all(word.lstrip("+-").isdecimal() for word in words) else []


def _node(lines: list[str], number: int, size: int, where: str) -> tuple[int, list[int], list[float]]:
    """Return (tag, neighbours, attributes) of a node of a graph of some size."""
    words = _words(lines, number, where)
    try:
        tag, degree = _int(words[0]), _int(words[1])
        neighbours = [_int(word) for word in words[2 : 2 + max(0, degree)]]
        if not 0 <= degree <= len(words) - 2 or any(not 0 <= u < size for u in neighbours):
            raise ValueError
    except (IndexError, ValueError, OverflowError):
        raise FormatError(
            f"{where}, line {number + 1}: not 'tag degree neighbours', whole numbers, neighbours within 0..{size - 1}: "
            f"{lines[number][:60]!r}"
        ) from None
    try:
        rest = [float(word) for word in words[2 + degree :]]
    except ValueError:
        raise FormatError(
            f"{where}, line {number + 1}: attributes that are no numbers: {words[2 + degree :][:5]}"
        ) from None
    return tag, neighbours, rest


def _int(word: str) -> int:
    """Return a whole number, also one that is written 3.0 or 1e2; raise ValueError for any other."""
    if len(word) <= 18 and word.lstrip("+-").isdecimal():
        return int(word)
    number = float(word)
    if number != int(number) or abs(number) >= 2**53:
        raise ValueError
    return int(number)


def _whole(lines: list[str], number: int, where: str) -> list[int]:
    words = _words(lines, number, where)
    try:
        return [_int(word) for word in words]
    except (ValueError, OverflowError):
        raise FormatError(f"{where}, line {number + 1}: expected whole numbers, got {lines[number][:60]!r}") from None


def _words(lines: list[str], number: int, where: str) -> list[str]:
    if number >= len(lines) or not lines[number].strip():
        raise FormatError(f"{where} ends at line {number + 1}, in the middle of a graph; it is truncated")
    return lines[number].split()


def _features(tags: np.ndarray, attributes: list[list[float]], where: str) -> tuple[tuple[str, ...], np.ndarray]:
    """Return names and (N, F) float32 of features: a column a tag, then the attributes."""
    widths = {len(row) for row in attributes}
    if len(widths) > 1:
        raise FormatError(f"{where}: nodes have different numbers of attributes, {sorted(widths)}")
    kinds, place = np.unique(tags, return_inverse=True)
    check_size(where, 4 * len(tags) * (len(kinds) + max(widths)), what=f"one column for each of {len(kinds):,} tags")
    onehot = np.eye(len(kinds), dtype=np.float32)[place]
    names = (*(f"{TAG}{kind}" for kind in kinds.tolist()), *(f"attribute {i}" for i in range(max(widths))))
    return names, np.concatenate([onehot, np.array(attributes, np.float32)], 1) if widths != {0} else onehot


def read_folds(path: Path, folder: str | Path | None, num_folds: int, num_graphs: int) -> dict[str, np.ndarray]:
    """Return the masks of the folds of a set; none where there is no folder of them.

    Args:
        path: folder/NAME.txt.
        folder: as `fold_folder` of `read_tu`.
        num_folds: that are read.
        num_graphs: of the set.
    """
    chosen = path.parent / "10fold" if folder is None else Path(folder)
    if folder is None and not exists(chosen / f"{path.stem}-test_idx-1.txt"):
        return {}
    parts: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    tested = np.zeros(num_graphs, np.int64)  # fold that tests each graph, 0 for none
    for k in range(1, num_folds + 1):
        for name, found in parts.items():
            file = chosen / f"{path.stem}-{name}_idx-{k}.txt"
            if not exists(file):
                raise MissingFileError(f"fold {k} of {path.stem} is missing: no file {file}")
            found.append(_fold(file, num_graphs))
        train, test = parts["train"][-1], parts["test"][-1]
        both = np.intersect1d(train, test)
        if len(both):
            raise FormatError(
                f"{file}: graph {both[0]} is also among those that fold {k} trains on ({len(both)} such graphs); "
                "make the folds again"
            )
        again = test[tested[test] > 0]
        if len(again):
            raise FormatError(
                f"{file}: fold {tested[again[0]]} tests graph {again[0]} too ({len(again)} such graphs); each graph is "
                "tested in one fold"
            )
        tested[test] = k
    return folds(parts["train"], parts["test"], num_graphs)


def _fold(file: Path, num_graphs: int) -> np.ndarray:
    """Return the graph numbers of a file of a fold."""
    words = read_text(file).split()
    try:
        numbers = np.array([_int(word) for word in words], np.int64)
    except (ValueError, OverflowError):
        raise FormatError(f"{file} holds something else than numbers of graphs") from None
    if not len(numbers):
        raise FormatError(f"{file} names no graph")
    if numbers.min() < 0 or numbers.max() >= num_graphs:
        raise FormatError(f"{file} names graphs outside 0..{num_graphs - 1}")
    if len(np.unique(numbers)) < len(numbers):
        raise FormatError(f"{file} names a graph twice")
    return numbers
