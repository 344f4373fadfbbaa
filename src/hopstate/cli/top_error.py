"""`hopstate top-error RUN`: how far a trained backbone on node batches is from itself on the whole graph."""

from __future__ import annotations

from hopstate.cli.answer import Answer, json_text, lines
from hopstate.cli.options import Options
from hopstate.compensation.top.config import TopConfig
from hopstate.data.graph import Graph
from hopstate.datasets.registry import cache_folder
from hopstate.errors import ConfigError
from hopstate.methods.message_passing.batching import Batching
from hopstate.methods.message_passing.method import FullBatchRun, backbone_for, place_of
from hopstate.methods.message_passing.model import Backbone
from hopstate.methods.message_passing.top_error import relative_errors
from hopstate.methods.method import Context
from hopstate.methods.shared.edges import message_graph
from hopstate.methods.shared.node import node_labels
from hopstate.runs.data import config_of_run, known_data, load_data, settings_of_run
from hopstate.runs.prepare import prepared
from hopstate.training.checkpoint import load_checkpoint, load_weights
from hopstate.training.room import not_beyond
from hopstate.training.run_folder import RunFolder

EPILOG = """Train first, e.g. `hopstate fit gcn --data minesweeper --out RUN`. The error is |H* - H| / |H*| of the last
layer over the batches of an epoch, H* on the whole graph. "top" makes its basis from the trained weights, "random" from
random ones."""


def run(argv: list[str]) -> Answer:
    """Measure the error."""
    parser = Options(prog="hopstate top-error", description=__doc__, epilog=EPILOG)
    parser.add_argument("run", help="run folder of a backbone (gcn, sage, gin, gat, pna, gcnii)")
    parser.add_argument("--clusters", type=int, default=200, help="clusters of the partition (default: 200)")
    parser.add_argument("--share", type=float, default=0.5, help="share of clusters or nodes in a batch (default: 0.5)")
    parser.add_argument(
        "--nodes",
        default="clusters",
        choices=["clusters", "random", "saint-node", "saint-edge", "saint-walk"],
        help="what a batch is made of (default: clusters)",
    )
    parser.add_argument("--rank", type=int, help="k (default: what one set of weights gives)")
    parser.add_argument("--layers", default="each", choices=["each", "shared"], help="bases (default: each layer's)")
    parser.add_argument("--basis", default="global", choices=["global", "batch"], help="(default: global)")
    parser.add_argument("--form", default="auto", choices=["auto", "linear", "general"], help="(default: auto)")
    parser.add_argument("--batches", type=int, default=10, help="most batches to look at (default: 10)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", default=None, help="module:NAME, where the run's method is code of your own")
    options = parser.parse_args(argv[1:])
    if not 0 < options.share <= 1:
        raise ConfigError(f"--share lies in (0, 1]; got {options.share}")
    if min(options.batches, options.clusters) < 1 or options.seed < 0:
        raise ConfigError(
            f"--batches and --clusters are at least 1, --seed at least 0; got {options.batches}, "
            f"{options.clusters}, {options.seed}"
        )
    graph, model = _trained(options.run, options.method)
    clusters = min(options.clusters, graph.num_nodes)
    batching = Batching(
        nodes=options.nodes,
        num_clusters=clusters,
        clusters_per_batch=max(1, round(options.share * clusters)),
        batch_size=max(1, round(options.share * graph.num_nodes)),
        top=TopConfig(rank=options.rank, basis=options.basis, form=options.form, layers=options.layers),
    )
    errors = relative_errors(graph, model, batching, seed=options.seed, most=options.batches)
    record = {"share": options.share, "nodes": options.nodes, **{k: round(v, 6) for k, v in errors.items()}}
    return Answer(record, lines(json_text(record)))


def _trained(path: str, named: str | None) -> tuple[Graph, Backbone]:
    """Return the graph and the trained backbone of a run folder."""
    folder = RunFolder.open(path)
    method, settings = settings_of_run(folder, named)
    saved = load_checkpoint(folder.weights)
    config = config_of_run(folder, method, settings)
    if not isinstance(config, FullBatchRun):
        raise ConfigError(f"{path} is a {method.name} run; this command takes gcn, sage, gin, gat, pna or gcnii")
    graph = load_data(config.data, config.read, "graph")
    context = Context(run=folder.path, cache=cache_folder(), trained=known_data(folder))
    graph, _ = prepared(graph, config, context, edges=method.reads_edges(config))
    labels = node_labels(graph, config.split, config.metric, context, positive=config.read.positive_class)
    graph = message_graph(graph, config.edges, place_of(method.name), method.name, config.loop)
    weights = saved.tensors.get("model", {})
    with not_beyond(weights, folder.weights, graph):
        model = backbone_for(graph, config.model, method.name, len(labels.class_names))
    load_weights(model, weights, str(folder.weights))
    return graph, model
