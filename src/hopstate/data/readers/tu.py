"""Graph sets in the text format of the TU collections as DGCNN and GIN publish them.

First line: number of graphs. Then per graph a line "n label", and per node a line "tag degree neighbour neighbour ...
[attribute ...]", neighbours counted from 0 within the graph. Labels and tags are any integers; tags become one-hot
features.

Source: Zhang et al. 2018 (DGCNN), github.com/muhanzhang/pytorch_DGCNN.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hopstate.data.graph import Graph
from hopstate.data.graph_set import GraphSet, folds
from hopstate.errors import FormatError, MissingFileError


def read_tu(path: str | Path, *, fold_folder: str | Path | None = None, num_folds: int = 10) -> GraphSet:
    """Return the graphs of a TU text file.

    Args:
        path: the file, NAME.txt.
        fold_folder: folder with NAME-train_idx-K.txt and NAME-test_idx-K.txt, K = 1..num_folds; by default "10fold"
            beside the file where it is there.
        num_folds: folds to read.

    Raises:
        MissingFileError: no such file, or a fold is missing.
        FormatError: not such a file, or truncated; the message names the line.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(f"no file {path}")
    lines = path.read_text().split("\n")
    where, at = str(path), 1
    graphs = _numbers(lines, 0, where)
    sizes: list[int] = []
    labels, tags, attributes, edges = [], [], [], []
    for _ in range(int(graphs[0])):
        head = _numbers(lines, at, where)
        if len(head) != 2 or head[0] < 1:
            raise FormatError(f"{where}, line {at + 1}: expected 'nodes label' of a graph, got {lines[at]!r}")
        first, size = sum(sizes), int(head[0])
        for v in range(size):
            row = _numbers(lines, at + 1 + v, where)
            degree = int(row[1]) if len(row) > 1 else 0
            neighbours = row[2 : 2 + degree]
            if len(row) < 2 + degree or any(not 0 <= u < size for u in neighbours):
                raise FormatError(f"{where}, line {at + 2 + v}: not 'tag degree neighbours' within 0..{size - 1}")
            tags.append(row[0])
            attributes.append(row[2 + degree :])
            edges += [(first + v, first + int(u)) for u in neighbours]
        sizes.append(size)
        labels.append(head[1])
        at += size + 1
    names, y = np.unique(np.array(labels, np.int64), return_inverse=True)
    union = Graph.from_edges(
        np.array(edges, np.int64).reshape(-1, 2), sum(sizes), undirected=True, name=path.stem, source=where,
        x=_features(np.array(tags, np.int64), attributes, where),
    )  # fmt: skip
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    masks = _read_folds(path, fold_folder, num_folds, len(sizes))
    class_names = tuple(str(n) for n in names)
    return GraphSet(union=union, offsets=offsets, y=y.astype(np.int64), masks=masks, class_names=class_names)


def _numbers(lines: list[str], number: int, where: str) -> list[float]:
    if number >= len(lines) or not lines[number].strip():
        raise FormatError(f"{where} ends at line {number + 1}, in the middle of a graph; it is truncated")
    try:
        return [float(word) for word in lines[number].split()]
    except ValueError:
        raise FormatError(f"{where}, line {number + 1}: expected numbers, got {lines[number][:60]!r}") from None


def _features(tags: np.ndarray, attributes: list[list[float]], where: str) -> np.ndarray:
    widths = {len(row) for row in attributes}
    if len(widths) > 1:
        raise FormatError(f"{where}: nodes have different numbers of attributes, {sorted(widths)}")
    kinds, place = np.unique(tags, return_inverse=True)
    onehot = np.eye(len(kinds), dtype=np.float32)[place]
    return np.concatenate([onehot, np.array(attributes, np.float32)], 1) if widths != {0} else onehot


def _read_folds(path: Path, folder: str | Path | None, num_folds: int, num_graphs: int) -> dict[str, np.ndarray]:
    chosen = path.parent / "10fold" if folder is None else Path(folder)
    if folder is None and not (chosen / f"{path.stem}-test_idx-1.txt").is_file():
        return {}
    parts: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    for k in range(1, num_folds + 1):
        for name, found in parts.items():
            file = chosen / f"{path.stem}-{name}_idx-{k}.txt"
            if not file.is_file():
                raise MissingFileError(f"fold {k} of {path.stem} is missing: no file {file}")
            numbers = np.array(file.read_text().split(), np.int64)
            if len(numbers) and not (numbers.min() >= 0 and numbers.max() < num_graphs):
                raise FormatError(f"{file} names graphs outside 0..{num_graphs - 1}")
            found.append(numbers)
    return folds(parts["train"], parts["test"], num_graphs)
