"""Hop2Token compared with scipy's and torch's CSR products, and on a graph within a memory budget.

    python benchmarks/hop2token.py          speed at K = 10 on one core, and memory relative to the output's size
    python benchmarks/hop2token.py budget   1M nodes, 10M R-MAT edges, 128 features, K = 3 under 2 GiB, output on disk
                                            (--nodes and --size for others; ten edges per node)

Peak memory is the kernel's high-water mark of a fresh process (VmHWM: anonymous and mapped pages, page cache that no
process maps excluded).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from common import machine, median_time, require_green, rmat_edges
from hopstate.data.graph import Graph
from hopstate.methods.nagphormer.hops import hop_tokens
from hopstate.ops.propagate import hop_powers

# nodes, entries, features of Minesweeper, Cora and a mid-sized graph
CASES = {"minesweeper": (10_000, 78_804, 7), "cora": (2_708, 10_556, 1_433), "200k": (200_000, 2_600_000, 128)}


def random_graph(nodes: int, entries: int, width: int) -> Graph:
    """Uniformly random edges."""
    generator = np.random.default_rng(0)
    edges = generator.integers(0, nodes, (entries // 2, 2))
    return Graph.from_edges(edges, nodes, x=generator.standard_normal((nodes, width), dtype=np.float32))


def speed(cases: list[str], num_hops: int = 10) -> None:
    """Print seconds and ratios; the baselines are timed with and without storing their hops side by side."""
    import scipy.sparse as sp

    for name in cases:
        shape = CASES[name]
        graph = random_graph(*shape)
        n, x = graph.num_nodes, graph.x
        assert x is not None
        scale = sp.diags_array(1 / np.sqrt(1.0 + graph.degree))
        a_hat = (scale @ (graph.to_scipy() + sp.eye_array(n)) @ scale).tocsr().astype(np.float32)
        a_hat.indptr, a_hat.indices = a_hat.indptr.astype(np.int32), a_hat.indices.astype(np.int32)
        parts = (torch.from_numpy(p) for p in (a_hat.indptr, a_hat.indices, a_hat.data))
        in_torch = torch.sparse_csr_tensor(*parts, (n, n))

        def ours(graph: Graph = graph, x: np.ndarray = x) -> None:
            tokens = np.empty((len(x), num_hops + 1, x.shape[1]), np.float32)
            tokens[:, 0] = x
            hop_powers(graph.indptr, graph.indices, tokens)

        def chain(a: object, h: object, out: object = None) -> None:
            for k in range(num_hops):
                h = a @ h  # type: ignore[operator]
                if out is not None:
                    out[:, k + 1] = h  # type: ignore[index]

        seconds = {
            "hopstate": median_time(ours),
            "scipy": median_time(lambda a=a_hat, x=x: chain(a, x)),
            "torch": median_time(lambda a=in_torch, x=x: chain(a, torch.from_numpy(x))),
            "scipy, stored": median_time(
                lambda a=a_hat, x=x: chain(a, x, np.empty((len(x), num_hops + 1, x.shape[1]), np.float32))
            ),
            "torch, stored": median_time(
                lambda a=in_torch, x=x: chain(a, torch.from_numpy(x), torch.empty(len(x), num_hops + 1, x.shape[1]))
            ),
        }
        stored = min(seconds["scipy, stored"], seconds["torch, stored"])
        bare = min(seconds["scipy"], seconds["torch"])
        print(f"{name}: " + ", ".join(f"{k} {v:.4f} s" for k, v in seconds.items()))
        print(f"  ratio to the better baseline: {seconds['hopstate'] / stored:.2f} storing the hops as we do, ", end="")
        print(f"{seconds['hopstate'] / bare:.2f} of its products only")


def high_water() -> tuple[int, int]:
    """Return (VmHWM, VmRSS) of this process in bytes."""
    lines = dict(x.split(":", 1) for x in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024, int(lines["VmRSS"].split()[0]) * 1024


def reset_high_water() -> None:
    """Set VmHWM to the current size."""
    Path("/proc/self/clear_refs").write_text("5")


def memory(case: str) -> None:
    """Print peak memory of the call and its output's size."""
    graph = random_graph(*CASES[case])
    hop_tokens(random_graph(100, 300, 4), 1, max_memory=1 << 30)  # compiled code is loaded
    reset_high_water()
    before = high_water()[1]
    nbytes = hop_tokens(graph, 10, max_memory=1 << 40).array.nbytes
    print(f"{case}: peak {(high_water()[0] - before) / nbytes:.3f} times the output of {nbytes:,} bytes")


def budget(folder: str, size: int) -> None:
    """Compute tokens of the large graph in `folder` and read every row once, in a separate process."""
    start = high_water()[0]
    graph = Graph.load(folder, mmap=False)
    loaded, clock = high_water()[1], time.perf_counter()
    tokens = hop_tokens(graph, 3, max_memory=size, folder=Path(folder) / "tokens")
    nbytes = tokens.array.nbytes
    made, peak = time.perf_counter() - clock, high_water()[0]
    clock, total = time.perf_counter(), 0.0
    for rows in np.array_split(np.random.default_rng(0).permutation(graph.num_nodes), 500):
        total += float(tokens.rows(rows)[0, 0, 0])
    read = time.perf_counter() - clock
    print(f"budget {size:,}: imports {start:,}, graph loaded {loaded:,}, peak making {peak:,}, ", end="")
    print(f"peak reading {high_water()[0]:,}; output {nbytes:,} bytes in {made:.1f} s, read in {read:.1f} s")
    print(f"  peak over budget: {high_water()[0] / size:.3f}")


def main() -> None:
    """Run the given command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="speed", choices=["speed", "budget", "budget-child"])
    parser.add_argument("--folder")
    parser.add_argument("--cases", nargs="+", default=[*CASES], choices=[*CASES])
    parser.add_argument("--size", type=int, default=2 << 30, help="bytes of the budget")
    parser.add_argument("--nodes", type=int, default=1_000_000, help="of the graph under the budget")
    options = parser.parse_args()
    if options.what == "budget-child":
        budget(options.folder, options.size)
        return
    require_green("tests/ops/test_propagate.py", "tests/methods/nagphormer/test_hops.py")
    print(machine())
    if options.what == "speed":
        torch.set_num_threads(1)
        speed(options.cases)
        memory(options.cases[-1])
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        n = options.nodes
        x = np.random.default_rng(1).standard_normal((n, 128), dtype=np.float32)
        Graph.from_edges(rmat_edges(n, 10 * n), n, x=x).save(f"{folder}/graph")
        command = [sys.executable, __file__, "budget-child", "--folder", f"{folder}/graph", "--size", str(options.size)]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    main()
