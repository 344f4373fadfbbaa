"""Graphs made from a seed: Minesweeper, stochastic block model, R-MAT, and paths and rings for long-range tests.

Source: Minesweeper: Platonov et al., ICLR 2023, arXiv:2302.11640, §4; R-MAT: Chakrabarti, Zhan, Faloutsos, SDM 2004.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hopstate.data.events import EventStream
from hopstate.data.graph import Graph
from hopstate.data.splits import masks_from_rows, random_split
from hopstate.datasets.temporal_generators import check_groups, check_shares
from hopstate.errors import ConfigError
from hopstate.random import named_rng


def tree_match(depth: int = 4, count: int = 500, *, num_classes: int = 4, seed: int = 0) -> Graph:
    """Return disjoint binary trees in which each root is to tell the class of the leaf that holds the root's key.

    Features are a key, one-hot of 2^depth, in the root and in every leaf (each leaf of a tree has another), then a
    class, one-hot, in the leaves alone; the inner nodes hold nothing. The roots are labelled, all others are not. What
    a root needs is one leaf of 2^depth, and messages cannot know which before they have reached it.

    Args:
        depth: hops from a root to its leaves; a tree has 2^(depth + 1) - 1 nodes, the root first, a node's children
            after all nodes of its own level.
        count: trees; the classes of their labels differ in number by one at most.
        num_classes: C.
        seed: fixes keys, classes and the 70/15/15 split of the roots.

    Raises:
        ConfigError: a depth outside 1..16, fewer than two classes, or fewer than 7 trees a class to split.
    """
    if not 1 <= depth <= 16 or num_classes < 2 or count < 7 * num_classes:
        raise ConfigError(
            f"depth is 1..16, num_classes >= 2, count >= 7 num_classes; got {depth}, {num_classes}, {count}"
        )
    rng = named_rng(seed)
    leaves, nodes = 2**depth, 2 ** (depth + 1) - 1
    roots, first = np.arange(count) * nodes, nodes - leaves
    label = rng.permutation(np.arange(count) % num_classes)
    keys = rng.permuted(np.tile(np.arange(leaves), (count, 1)), axis=1)
    classes = rng.integers(num_classes, size=(count, leaves))
    asked = rng.integers(leaves, size=count)  # the leaf, by its place
    classes[np.arange(count), asked] = label
    x = np.zeros((count, nodes, leaves + num_classes), np.float32)
    tree, place = np.indices(keys.shape)
    x[tree, first + place, keys] = 1
    x[tree, first + place, leaves + classes] = 1
    x[np.arange(count), 0, keys[np.arange(count), asked]] = 1
    y = np.full(count * nodes, -1, np.int64)
    y[roots] = label
    child = np.arange(1, nodes)
    edges = np.stack([(roots[:, None] + (child - 1) // 2).ravel(), (roots[:, None] + child).ravel()], 1)
    return _with_split(
        edges, x.reshape(count * nodes, -1), y, seed, "tree-match",
        f"tree_match({depth=}, {count=}, {num_classes=}, {seed=})",
    )  # fmt: skip


def far_clues(reach: int = 20, rows: int = 500, *, crossings: int = 0, faint: float = 1e-3, seed: int = 0) -> Graph:
    """Return a board of corridors in which each row's last cell is to tell the clue in its row's first one.

    Walls stand between the rows except in the first column, so that the board is connected and the next rows' clues are
    one and two steps beyond a row's own. Features: 1 in the cells with a clue, 0 elsewhere; then the clue, 1 or -1, or
    uniform noise in (-1, 1) where there is none. The last cells are labelled, 1 for a clue of 1 and 0 for -1.

    With crossings the board comes near a random graph, in which a few hops reach all of it: the only edge feature is 1
    along rows and the first column, and faint in a crossing.

    Args:
        reach: steps from a row's last cell to its first; a row has reach + 1 cells.
        rows: of the board; half of them with a clue of 1.
        crossings: edges drawn from each cell to cells of other rows; 0 leaves edges without features.
        faint: edge feature of a crossing.
        seed: fixes clues, noise, crossings and the 70/15/15 split of the last cells.

    Raises:
        ConfigError: a reach under 1, fewer than 14 rows to split, or crossings under 0.
    """
    if reach < 1 or rows < 14 or crossings < 0:
        raise ConfigError(f"reach >= 1, rows >= 14 and crossings >= 0; got {reach}, {rows}, {crossings}")
    rng = named_rng(seed)
    cell = np.arange(rows * (reach + 1)).reshape(rows, reach + 1)
    bit = rng.permutation(np.arange(rows) % 2)
    x = np.stack([np.zeros(cell.size), rng.uniform(-1, 1, cell.size)], 1).astype(np.float32)
    x[cell[:, 0]] = np.stack([np.ones(rows), 2 * bit - 1], 1)
    y = np.full(cell.size, -1, np.int64)
    y[cell[:, -1]] = bit
    along = np.stack([cell[:, :-1].ravel(), cell[:, 1:].ravel()], 1)
    down = np.stack([cell[:-1, 0], cell[1:, 0]], 1)
    edges, marks, more = np.concatenate([along, down]), None, ""
    if crossings:
        across = _crossings(cell, crossings, rng)
        marks = np.repeat(np.array([1, faint], np.float32), [len(edges), len(across)])[:, None]
        edges, more = np.concatenate([edges, across]), f"{crossings=}, {faint=}, "
    return _with_split(edges, x, y, seed, "far-clues", f"far_clues({reach=}, {rows=}, {more}{seed=})", marks)


def _crossings(cell: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return edges from each cell to cells of other rows; between two first cells there is none."""
    rows, width = cell.shape
    row, column = (np.repeat(part.ravel(), count) for part in np.indices(cell.shape))
    other = (row + rng.integers(1, rows, len(row))) % rows
    there = rng.integers(width, size=len(row))
    kept = (column > 0) | (there > 0)
    return np.stack([cell[row, column], cell[other, there]], 1)[kept]


def _with_split(
    edges: np.ndarray, x: np.ndarray, y: np.ndarray, seed: int, name: str, source: str, marks: np.ndarray | None = None
) -> Graph:
    rows = random_split(y, (0.7, 0.15, 0.15), seed=seed, stratified=True)
    return Graph.from_edges(
        edges, len(y), x=x, y=y, edge_attr=marks, masks=masks_from_rows([rows], len(y)), name=name, source=source
    )


START = 1_767_225_600  # 1 January 2026, UTC, in seconds


@dataclass(frozen=True, kw_only=True)
class ClubConfig:
    """Settings of `generate_clubs`.

    Args:
        num_nodes: members.
        num_events: talks.
        num_clubs: hidden groups; as many features has an event.
        clubs: whether partners are sought in the club; False draws them from everybody.
        within: share of the talks without habit that stay in the club.
        habit: share of the talks that go to an earlier partner of the initiator.
        noise: standard deviation of a reading's noise in each feature, where a club's own feature is 1.
        days: length of the stream.
        seed: one seed, one stream.

    Raises:
        ConfigError: fewer than two members a club, no talk, or a share outside 0..1.
    """

    num_nodes: int = 1_500
    num_events: int = 6_000
    num_clubs: int = 6
    clubs: bool = True
    within: float = 0.95
    habit: float = 0.2
    noise: float = 0.7
    days: float = 60.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_groups(self.num_nodes, self.num_clubs, "members", "clubs")
        check_shares(self, "within", "habit")
        if self.num_events < 1 or not 0 < self.days < np.inf:
            raise ConfigError(f"num_events must be at least 1 and days over 0; got {self.num_events}, {self.days}")
        if not 0 <= self.noise < np.inf:
            raise ConfigError(f"noise is {self.noise}; it must be finite and at least 0")


def generate_clubs(config: ClubConfig | None = None) -> EventStream:
    """Make a stream of talks inside hidden clubs, with habits and a noisy reading of the club beside each talk.

    Returns:
        A stream in seconds, from 1 January 2026 on, with num_clubs features an event; nodes have none.
    """
    c = config or ClubConfig()
    rng = named_rng(c.seed)
    club = rng.permutation(np.arange(c.num_nodes) % c.num_clubs)
    src = rng.integers(0, c.num_nodes, c.num_events)
    order = np.argsort(club, kind="stable")
    start = np.searchsorted(club[order], np.arange(c.num_clubs + 1))
    first, count = start[club[src]], np.diff(start)[club[src]]
    inside = (rng.random(c.num_events) < c.within) & c.clubs
    mate = order[first + (rng.random(c.num_events) * count).astype(np.int64)]
    dst = np.where(inside, mate, rng.integers(0, c.num_nodes, c.num_events))
    dst = np.where(dst == src, (dst + 1) % c.num_nodes, dst)
    again, which = rng.random(c.num_events) < c.habit, rng.random(c.num_events)
    partners: list[list[int]] = [[] for _ in range(c.num_nodes)]
    for i, (u, v) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        if again[i] and partners[u]:
            v = dst[i] = partners[u][int(which[i] * len(partners[u]))]
        partners[u].append(v)
        partners[v].append(u)
    t = START + np.sort(rng.integers(0, max(1, round(c.days * 86_400)), c.num_events))
    readings = np.eye(c.num_clubs)[club[src]] + c.noise * rng.normal(size=(c.num_events, c.num_clubs))
    return EventStream(
        src=src,
        dst=dst,
        t=t,
        edge_attr=readings.astype(np.float32),
        num_nodes=c.num_nodes,
        time_unit="s",
        dates="UTC",
        name="clubs-generated",
        source="hopstate.datasets.generate_clubs",
    )


@dataclass(frozen=True, kw_only=True)
class BlocConfig:
    """Settings of `generate_blocs`.

    Args:
        num_nodes: members.
        num_events: votes in common, over all years.
        num_years: distinct time stamps; all events of a year share one.
        num_blocs: groups that vote together; as many features has an event.
        within: share of events inside a bloc; the others are between any two members.
        drift: share of members that draw their bloc anew from one year to the next.
        noise: standard deviation of a reading's noise in each feature, where a bloc's own feature is 1.
        seed: one seed, one stream.

    Raises:
        ConfigError: fewer than two members a bloc, fewer than one event a year, or a share outside 0..1.
    """

    num_nodes: int = 5_000
    num_events: int = 30_000
    num_years: int = 12
    num_blocs: int = 8
    within: float = 0.95
    drift: float = 0.01
    noise: float = 0.7
    seed: int = 0

    def __post_init__(self) -> None:
        check_groups(self.num_nodes, self.num_blocs, "members", "blocs")
        if self.num_years < 1 or self.num_events < self.num_years:
            raise ConfigError(f"{self.num_events} events cannot fill {self.num_years} years with one each")
        check_shares(self, "within", "drift")
        if not 0 <= self.noise < np.inf:
            raise ConfigError(f"noise is {self.noise}; it must be finite and at least 0")


def generate_blocs(config: BlocConfig | None = None) -> EventStream:
    """Make a stream of votes in common between members of slowly changing blocs, with the noisy matter of each vote.

    Returns:
        A stream at times 0, 1, ..., num_years - 1 with num_blocs features an event; nodes have none.
    """
    c = config or BlocConfig()
    rng = named_rng(c.seed)
    bloc = rng.permutation(np.arange(c.num_nodes) % c.num_blocs)
    cuts = np.linspace(0, c.num_events, c.num_years + 1).round().astype(np.int64)
    sizes = cuts[1:] - cuts[:-1]
    src, dst, matter = [], [], []
    for size in sizes.tolist():
        sender = rng.integers(0, c.num_nodes, size)
        inside = rng.random(size) < c.within
        order = np.argsort(bloc, kind="stable")
        start = np.searchsorted(bloc[order], np.arange(c.num_blocs + 1))
        first, count = start[bloc[sender]], np.diff(start)[bloc[sender]]
        mate = order[first + (rng.random(size) * count).astype(np.int64)]
        receiver = np.where(inside, mate, rng.integers(0, c.num_nodes, size))
        receiver = np.where(receiver == sender, (receiver + 1) % c.num_nodes, receiver)
        src.append(sender)
        dst.append(receiver)
        matter.append(np.eye(c.num_blocs)[bloc[sender]] + c.noise * rng.normal(size=(size, c.num_blocs)))
        moves = rng.random(c.num_nodes) < c.drift
        bloc = np.where(moves, rng.integers(0, c.num_blocs, c.num_nodes), bloc)
    return EventStream(
        src=np.concatenate(src),
        dst=np.concatenate(dst),
        t=np.repeat(np.arange(c.num_years), sizes),
        edge_attr=np.concatenate(matter).astype(np.float32),
        num_nodes=c.num_nodes,
        name="blocs-generated",
        source="hopstate.datasets.generate_blocs",
    )


MINE_COUNTS = 6  # the published file tells 0, 1, ..., 4 and "5 or more" neighbouring mines apart


def minesweeper(
    size: int = 100, *, mines: float = 0.2, unknown: float = 0.5, seed: int = 0, num_splits: int = 10
) -> Graph:
    """Return a Minesweeper grid: which cells hold a mine, from the numbers shown in some of the cells.

    Every cell is joined to its up to 8 neighbours. Features, in the order of the published file: a flag for "number
    unknown", then the number of neighbouring mines one-hot as 0, 1, 2, 3, 4, 5 or more; an unknown cell has the flag
    alone.

    Args:
        size: cells along a side; size² nodes.
        mines: share of cells that hold a mine (class 1), exactly.
        unknown: share of cells whose number is unknown, exactly.
        seed: fixes mines, unknown cells and splits.
        num_splits: stored 50/25/25 splits, each with the same share of mines.

    Returns:
        A graph with size² nodes, 2(2·size·(size-1) + 2·(size-1)²) stored edges, 7 features and 2 classes.

    Raises:
        ConfigError: a size under 2, or shares outside 0..1.
    """
    if size < 2 or not 0 < mines < 1 or not 0 <= unknown <= 1:
        raise ConfigError(f"size >= 2, 0 < mines < 1, 0 <= unknown <= 1; got {size}, {mines}, {unknown}")
    rng = named_rng(seed)
    n = size * size
    y = np.zeros(n, np.int64)
    y[rng.permutation(n)[: round(mines * n)]] = 1
    hidden = rng.permutation(n)[: round(unknown * n)]
    board = np.pad(y.reshape(size, size), 1)
    steps = [(i, j) for i in (0, 1, 2) for j in (0, 1, 2) if (i, j) != (1, 1)]
    count = sum(board[i : i + size, j : j + size] for i, j in steps)
    column = 1 + np.minimum(np.asarray(count).ravel(), MINE_COUNTS - 1)
    column[hidden] = 0
    splits = [random_split(y, (0.5, 0.25, 0.25), seed=s, stratified=True) for s in rng.integers(2**31, size=num_splits)]
    return Graph.from_edges(
        _grid_edges(size),
        n,
        x=np.eye(1 + MINE_COUNTS, dtype=np.float32)[column],
        y=y,
        masks=masks_from_rows(splits, n) if splits else {},
        class_names=("no mine", "mine"),
        name="minesweeper-generated",
        source=f"minesweeper(size={size}, mines={mines}, unknown={unknown}, seed={seed})",
    )


def stochastic_block_model(
    num_nodes: int = 10_000,
    num_classes: int = 5,
    *,
    degree: float = 20.0,
    homophily: float = 0.8,
    num_features: int = 32,
    signal: float = 0.5,
    seed: int = 0,
) -> Graph:
    """Return a graph whose edges prefer nodes of the same class (homophily > 1/classes) or of another one.

    The number of edges inside and between classes is Poisson; end points are uniform, so that a node's degree is
    Poisson about `degree` (duplicates dropped). Class sizes differ by at most one; nodes are in random order.

    Args:
        num_nodes: N, in memory and time linear in N · degree.
        num_classes: C.
        degree: expected neighbours of a node.
        homophily: share of edges that join nodes of the same class.
        num_features: F; 0 for none. Features are signal · (unit vector of the class) + standard normal noise.
        signal: length of the class vector.
        seed: fixes everything.

    Raises:
        ConfigError: fewer than two nodes a class, or a share outside 0..1.
    """
    if num_classes < 1 or num_nodes < 2 * num_classes or not 0 <= homophily <= 1 or degree < 0:
        raise ConfigError(
            f"need two nodes a class and 0 <= homophily <= 1; got {num_nodes}, {num_classes}, {homophily}"
        )
    rng = named_rng(seed)
    y = rng.permutation(np.arange(num_nodes) % num_classes)
    members = np.argsort(y, kind="stable")
    sizes = np.bincount(y, minlength=num_classes)
    starts = np.cumsum(sizes) - sizes
    count = rng.poisson(num_nodes * degree / 2)
    u = rng.integers(num_nodes, size=count)
    shift = rng.integers(1, num_classes, size=count) if num_classes > 1 else np.zeros(count, np.int64)
    other = (y[u] + np.where(rng.random(count) < homophily, 0, shift)) % num_classes
    v = members[starts[other] + (rng.random(count) * sizes[other]).astype(np.int64)]
    x = None
    if num_features:
        means = rng.normal(size=(num_classes, num_features))
        means *= signal / np.linalg.norm(means, axis=1, keepdims=True)
        x = rng.standard_normal((num_nodes, num_features), np.float32) + means.astype(np.float32)[y]
    return Graph.from_edges(
        np.stack([u, v], 1),
        num_nodes,
        self_loops="drop",
        x=x,
        y=y,
        masks=masks_from_rows([random_split(y, seed=seed, stratified=True)], num_nodes) if num_nodes >= 5 else {},
        name="sbm",
        source=f"stochastic_block_model({num_nodes}, {num_classes}, {degree=}, {homophily=}, {seed=})",
    )


def rmat(
    scale: int = 14,
    edges_per_node: float = 8.0,
    *,
    probabilities: tuple[float, float, float, float] = (0.57, 0.19, 0.19, 0.05),
    num_nodes: int | None = None,
    num_features: int = 0,
    undirected: bool = True,
    seed: int = 0,
) -> Graph:
    """Return a power-law graph drawn by recursive choice of a quadrant of the adjacency matrix.

    Args:
        scale: the matrix has 2^scale rows.
        edges_per_node: edges drawn for every node; duplicates and self-loops are dropped afterwards.
        probabilities: of the quadrants (a, b, c, d) = (low-low, low-high, high-low, high-high).
        num_nodes: nodes, if not 2^scale; ids are drawn from the next power of two, modulo num_nodes.
        num_features: standard normal features a node; 0 for none.
        undirected: store both directions.
        seed: fixes everything, whatever the number of threads.

    Raises:
        ConfigError: a scale outside 1..40 or probabilities that do not sum to 1.
    """
    if num_nodes is not None:
        scale = max(1, (num_nodes - 1).bit_length())
    if not 1 <= scale <= 40 or min(probabilities) < 0 or abs(sum(probabilities) - 1) > 1e-9:
        raise ConfigError(f"scale is 1..40 and probabilities sum to 1; got {scale} and {probabilities}")
    from hopstate.datasets.rmat_kernel import rmat_edges

    n = num_nodes if num_nodes is not None else 1 << scale
    a, b, c, _ = probabilities
    edges = rmat_edges(scale, n, round(edges_per_node * n), a, a + b, a + b + c, seed)
    rng = named_rng(seed)
    return Graph.from_edges(
        edges,
        n,
        undirected=undirected,
        self_loops="drop",
        x=rng.standard_normal((n, num_features), np.float32) if num_features else None,
        name="rmat",
        source=f"rmat(scale={scale}, edges_per_node={edges_per_node}, num_nodes={n}, seed={seed})",
    )


def long_range(
    length: int = 10,
    count: int = 500,
    *,
    ring: bool = False,
    num_features: int = 2,
    marked: bool = False,
    seed: int = 0,
) -> Graph:
    """Return disjoint paths (or rings) in which each path's last node is to tell the bit at its first node.

    Features are uniform in (-1, 1), except in the first node of a path, which holds ±1 in every column; the label of
    the node at distance `length` from it is 1 for +1 and 0 for -1, all others are unlabelled. On a ring that is the
    opposite node and the message may come from both sides. Nothing nearer than `length` hops helps.

    Args:
        length: hops from the bit to the node that is asked; a path has length + 1 nodes, a ring 2 · length.
        count: paths; half of them with +1.
        ring: rings in place of paths.
        num_features: columns of x, besides the mark's.
        marked: a last column that is 1 in the first nodes and 0 elsewhere; without it only the exact ±1 tells them.
        seed: fixes features, bits and the 70/15/15 split of the labelled nodes.

    Raises:
        ConfigError: a length under 1 (2 for a ring), or fewer than 7 paths to split.
    """
    if length < (2 if ring else 1) or count < 7 or num_features < 1:
        raise ConfigError(
            f"length >= 1 (a ring: 2), count >= 7, num_features >= 1; got {length}, {count}, {num_features}"
        )
    rng = named_rng(seed)
    nodes = 2 * length if ring else length + 1
    total = count * nodes
    bit = rng.permutation(np.arange(count) % 2)
    x = rng.uniform(-1, 1, (total, num_features)).astype(np.float32)
    heads = np.arange(count) * nodes
    x[heads] = (2 * bit - 1)[:, None]
    if marked:
        x = np.concatenate([x, np.isin(np.arange(total), heads)[:, None].astype(np.float32)], 1)
    y = np.full(total, -1, np.int64)
    y[heads + length] = bit
    step = np.arange(nodes if ring else nodes - 1)
    sources = (heads[:, None] + step).ravel()
    targets = (heads[:, None] + (step + 1) % nodes).ravel()
    return Graph.from_edges(
        np.stack([sources, targets], 1),
        total,
        x=x,
        y=y,
        masks=masks_from_rows([random_split(y, (0.7, 0.15, 0.15), seed=seed, stratified=True)], total),
        name="long-range-ring" if ring else "long-range-path",
        source=f"long_range(length={length}, count={count}, ring={ring}, {'marked=True, ' * marked}seed={seed})",
    )


def _grid_edges(size: int) -> np.ndarray:
    """Return each pair of the 8-neighbour grid once, (edges, 2)."""
    cell = np.arange(size * size).reshape(size, size)
    pairs = (
        (cell[:, :-1], cell[:, 1:]),
        (cell[:-1], cell[1:]),
        (cell[:-1, :-1], cell[1:, 1:]),
        (cell[:-1, 1:], cell[1:, :-1]),
    )
    return np.concatenate([np.stack([a.ravel(), b.ravel()], 1) for a, b in pairs])
