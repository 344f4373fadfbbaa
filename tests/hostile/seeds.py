"""Good files of every format and run folders of several methods: which the corpus damages."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd

EVENTS, NODES, GRAPHS = 80, 12, 12
LOOP = ["--loop.epochs=1", "--loop.progress=false", "--loop.logger=none", "--loop.device=cpu"]


def events(seed: int = 0) -> pd.DataFrame:
    """Return a table of events between NODES users, sorted by time."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, 6, EVENTS)
    table = {"src": src, "dst": rng.integers(6, NODES, EVENTS), "t": np.sort(rng.integers(0, 10_000, EVENTS))}
    return pd.DataFrame(table | {"label": src % 2, "feat_0": rng.random(EVENTS).round(3)})


def edges(seed: int = 0) -> pd.DataFrame:
    """Return a table of edges, each once, between NODES nodes that all occur."""
    rng = np.random.default_rng(seed)
    ring = np.stack([np.arange(NODES), (np.arange(NODES) + 1) % NODES], 1)
    pairs = np.unique(np.concatenate([ring, rng.integers(0, NODES, (20, 2))]), axis=0)
    return pd.DataFrame({"source": pairs[:, 0], "target": pairs[:, 1], "weight": rng.random(len(pairs)).round(3)})


def make_data(folder: Path) -> None:
    """Write a good file of each format."""
    from hopstate.data.readers.read_events import read_events
    from hopstate.data.readers.read_graph import read_graph

    table, pairs = events(), edges()
    table.to_csv(folder / "events.csv", index=False)
    table.to_csv(folder / "events.tsv", index=False, sep="\t")
    table.to_parquet(folder / "events.parquet", index=False)
    table[["src", "dst", "t"]].to_csv(folder / "snap.txt", index=False, header=False, sep=" ")
    (folder / "packed.csv.gz").write_bytes(gzip.compress((folder / "events.csv").read_bytes()))
    head = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n"
    jodie = table.assign(dst=table.dst - 6)[["src", "dst", "t", "label", "feat_0"]]
    (folder / "jodie.csv").write_text(head + jodie.to_csv(index=False, header=False))
    dyglib = pd.DataFrame({"u": table.src + 1, "i": table.dst + 1, "ts": table.t, "label": table.label})
    dyglib.assign(idx=np.arange(1, EVENTS + 1)).to_csv(folder / "ml_x.csv")
    np.save(folder / "ml_x.npy", np.random.default_rng(1).random((EVENTS + 1, 3)))
    np.save(folder / "ml_x_node.npy", np.random.default_rng(2).random((NODES + 1, 4)))
    np.save(folder / "x.npy", np.random.default_rng(2).random((NODES, 4)))
    with zipfile.ZipFile(folder / "tgbl-wiki-v2.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(folder / "jodie.csv", "tgbl_wiki/tgbl-wiki_edgelist_v2.csv")
        archive.writestr("tgbl_wiki/tgbl-wiki_val_ns_v2.pkl", b"cos\nsystem\n(S'touch ran'\ntR.")
    pd.DataFrame({"id": [7, 8, 9]}).to_csv(folder / "ids.csv", index=False)
    read_events(str(folder / "events.csv")).save(folder / "stream")
    _graphs(folder, pairs)
    read_graph(str(folder / "h.npz")).save(str(folder / "graph"))


def _graphs(folder: Path, pairs: pd.DataFrame) -> None:
    import scipy.sparse
    import torch
    from torch_geometric.data import Data

    rng = np.random.default_rng(3)
    x, y = rng.random((NODES, 4)).astype(np.float32), np.arange(NODES) % 2
    masks = {f"{name}_masks": (np.arange(NODES) % 3 == k)[None] for k, name in enumerate(("train", "val", "test"))}
    both = pairs[["source", "target"]].to_numpy()
    np.savez_compressed(folder / "h.npz", node_features=x, node_labels=y, edges=both, **masks)
    np.savez(folder / "plain.npz", node_features=x, node_labels=y, edges=both, **masks)
    adjacency = scipy.sparse.csr_array((np.ones(len(both)), (both[:, 0], both[:, 1])), shape=(NODES, NODES))
    parts = {f"adj_{k}": getattr(adjacency, k) for k in ("data", "indices", "indptr", "shape")}
    attr = scipy.sparse.csr_array(x)
    parts |= {f"attr_{k}": getattr(attr, k) for k in ("data", "indices", "indptr", "shape")}
    np.savez(folder / "g.npz", labels=y, **parts)
    pairs.to_csv(folder / "edges.csv", index=False)
    pairs.to_parquet(folder / "edges.parquet", index=False)
    names = ("train", "val", "test")
    pd.DataFrame({"id": np.arange(NODES), "label": y, "split": [names[i % 3] for i in range(NODES)]}).to_csv(
        folder / "labels.csv", index=False
    )
    pd.DataFrame({"id": np.arange(NODES), **{f"f{i}": x[:, i] for i in range(4)}}).to_csv(
        folder / "features.csv", index=False
    )
    data = Data(x=torch.from_numpy(x), y=torch.from_numpy(y), edge_index=torch.from_numpy(both.T.copy()))
    torch.save(data, folder / "data.pt")
    _tu(folder)


def _tu(folder: Path) -> None:
    graph = "3 {y}\n0 2 1 2\n1 2 0 2\n0 2 0 1\n"
    (folder / "TU.txt").write_text(f"{GRAPHS}\n" + "".join(graph.format(y=i % 2) for i in range(GRAPHS)))
    (folder / "10fold").mkdir(exist_ok=True)
    for k in range(1, 11):
        test_rows = [k - 1] if k < 10 else [9, 10, 11]
        train = [i for i in range(GRAPHS) if i not in test_rows]
        for name, rows in (("train", train), ("test", test_rows)):
            (folder / "10fold" / f"TU-{name}_idx-{k}.txt").write_text("".join(f"{i}\n" for i in rows))


# folder → command line that trains it
RUNS = {
    "run-mlp": ["fit", "mlp", "--data=h.npz", "--model.dim=4", *LOOP],
    "run-hop": ["fit", "nagphormer", "--data=h.npz", "--model.dim=8", "--model.num_heads=2", "--tokens.num_hops=2",
                "--tokens.eigenvectors=2", *LOOP],
    "run-memory": ["fit", "ctdg-ssm", "--data=events.csv", "--model.dim=8", "--model.static=random",
                   "--model.static_dim=4", "--model.time_dim=4", "--batch_size=16", *LOOP],
    "run-tokens": ["fit", "nagphormer", "--data=h.npz", "--model.dim=8", "--model.num_heads=2", "--tokens.num_hops=2",
                   "--tokens.eigenvectors=0", "--tokens.max_memory=1000", *LOOP],
    "run-edgebank": ["fit", "edgebank", "--data=events.csv", *LOOP],
    "run-trees": ["fit", "pair-trees", "--data=events.csv", "--model.num_trees=4", "--model.max_leaves=4",
                  "--model.min_leaf=2", *LOOP],
}  # fmt: skip
