"""PageRank and core numbers of a graph's nodes, compared with networkx and, if it is installed, igraph.

python benchmarks/orders.py [--nodes 100000] [--edges 500000]
"""

from __future__ import annotations

import argparse
import time

import networkx as nx
import numpy as np

from common import machine, median_time, require_green
from hopstate.data.graph import Graph
from hopstate.methods.gmn.orders import order_key
from hopstate.random import named_rng


def graphs(nodes: int, edges: int) -> dict[str, Graph]:
    """Return a graph of skewed degrees, and a path, whose core decomposition removes one node at a time."""
    rng, weight = named_rng(0), np.arange(1, nodes + 1) ** -0.6
    ends = rng.choice(nodes, (2, edges), p=weight / weight.sum())
    path = np.stack([np.arange(nodes - 1), np.arange(1, nodes)])
    return {
        "skewed": Graph.from_edges(ends, num_nodes=nodes, undirected=True, duplicates="drop", self_loops="drop"),
        "path": Graph.from_edges(path, num_nodes=nodes, undirected=True),
    }


def main() -> None:
    """Print the machine and a line for each graph, measure and library."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=500_000)
    options = parser.parse_args()
    require_green("tests/methods/gmn/test_walk_tokens.py")
    print(machine())
    for name, graph in graphs(options.nodes, options.edges).items():
        pairs = list(zip(*graph.edge_index().tolist(), strict=True))
        other = nx.from_edgelist(pairs)
        works = {
            "kcore": {
                "hopstate": lambda g=graph: order_key(g.indptr, g.indices, "kcore"),
                "networkx": lambda g=other: nx.core_number(g),
            },
            "pagerank": {
                "hopstate": lambda g=graph: order_key(g.indptr, g.indices, "pagerank"),
                "networkx": lambda g=other: nx.pagerank(g, tol=1e-12 / len(g), max_iter=200),
            },
        }
        try:
            import igraph
        except ImportError:
            pass
        else:
            third = igraph.Graph(graph.num_nodes, [pair for pair in pairs if pair[0] < pair[1]])
            works["kcore"]["igraph"], works["pagerank"]["igraph"] = third.coreness, third.pagerank
        for measure, libraries in works.items():
            for library, work in libraries.items():
                seconds = median_time(work, repeats=3, clock=time.process_time)
                print(f"{name}, {graph.num_edges:,} entries: {measure} by {library} {seconds:.3f} s")


if __name__ == "__main__":
    main()
