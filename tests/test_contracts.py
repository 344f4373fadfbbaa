"""Contracts are declared, what is random has one home, and files are short: read off the library's code."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

from hopstate.methods import MODULES

SOURCE = Path(__file__).parent.parent / "src" / "hopstate"
PROBES = {  # file: (how many, whose objects they are)
    "compensation/top/probes.py": (2, "a user's or torch-geometric's modules, which have one of two names"),
    "compensation/top/store.py": (4, "a user's modules and what they hold, described for a digest"),
    "data/pyg_arrays.py": (4, "torch-geometric's Data and its sparse tensors"),
    "data/readers/frames.py": (9, "pandas, pyarrow and torch, not imported for it"),
    "data/readers/labels.py": (1, "pandas, not imported for it"),
    "data/readers/ogb.py": (1, "the package ogb"),
    "data/readers/pyg.py": (2, "whatever a file of torch-geometric holds"),
    "data/readers/read_graph.py": (3, "scipy's matrices and torch-geometric's Data, neither imported for it"),
    "io/files.py": (1, "the system"),
    "io/folders.py": (2, "the system"),
    "io/kernel_cache.py": (1, "the system"),
    "io/opening.py": (2, "the system"),
    "io/scratch.py": (1, "the system"),
    "layers/message.py": (1, "torch-geometric's layers"),
    "methods/nagphormer/hops.py": (2, "the system"),
    "ops/products/dense.py": (1, "torch, of which some builds have no oneDNN"),
    "runs/kept.py": (5, "torch-geometric's records, tables and arrays of a user"),
    "serving/guard.py": (1, "routes of starlette, of which some have no path"),
    "streaming/history_scorer.py": (1, "named tuples have no class of their own"),
    "streaming/replay.py": (1, "a user's scorer, which need not say whether it holds what it is shown"),
    "training/double.py": (1, "named tuples have no class of their own"),
}
OURS = {"graph", "graphs", "method", "model", "record", "scorer", "source", "store", "stream", "task", "trainer"}
UNTYPED = {  # parameters of these names that are something else
    "data/readers/edge_list.py": {"task"},  # an option of reading
    "data/readers/read_events.py": {"source"},  # a user's object
    "data/readers/read_graph.py": {"source"},
    "runs/analysis/explain.py": {"source"},  # a user's id
    "runs/analysis/questions.py": {"source"},
}

MADE = {  # where generators are made
    "random.py",
    "methods/pair_trees/bins.py",  # the rows that scikit-learn would draw
    "sampling/negatives.py",  # DyGLib's own sequence of draws, from numpy's legacy generator
    "testing/conformance.py",  # a model's weights as a user's script would seed them
}


PACKAGES = {p.parent.name for p in SOURCE.glob("methods/*/__init__.py")} - {"shared"}
LAYERS = {"mlp", "gcn", "sage", "gin", "gat", "pna", "gcnii"}  # words for layers, after which methods are called
KNOW_ONE = {  # shared modules that know a single method: (what of it, why)
    "__init__.py": ({"ctdg_ssm", "dyg_mamba", "gmn", "nagphormer"}, "the public surface: models by name"),
    "cli/inspect.py": ({"gin-graphs", "recency"}, "methods of each kind of record, for their reading options alone"),
    "cli/top_error.py": ({"message_passing"}, "a command about that package's batches and no other's"),
    "datasets/temporal_generators.py": ({"ctdg-ssm"}, "how that paper makes its paths, beside how CTAN does"),
    "runs/plan/stages.py": (
        {"ctdg-ssm", "dyg-mamba", "graphmixer", "nagphormer", "pair-trees"},
        "what each method's costs grow with, beside how it is measured",
    ),
    "runs/queries/first_stage.py": ({"pair_trees"}, "a first stage is a forest, whatever model it goes before"),
    "runs/queries/student.py": ({"pair_trees"}, "the same forest"),
    "runs/reproduce/tables.py": ({"edgebank", "pair-trees", "recency"}, "floors that tables of all methods show"),
    "serving/quality.py": ({"heuristics"}, "the floor that a live run is judged beside"),
}


@cache
def trees() -> list[tuple[str, ast.Module]]:
    return [(p.relative_to(SOURCE).as_posix(), ast.parse(p.read_text())) for p in sorted(SOURCE.rglob("*.py"))]


def is_probe(node: ast.AST) -> bool:
    """Return whether a node asks for an attribute of a fixed name that may not be there."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1):
        return False
    fixed = isinstance(node.args[1], ast.Constant)
    return fixed and (node.func.id == "hasattr" or (node.func.id == "getattr" and len(node.args) == 3))


def test_only_objects_of_others_are_probed() -> None:
    found = {name: sum(map(is_probe, ast.walk(tree))) for name, tree in trees()}
    assert {name: count for name, count in found.items() if count} == {name: n for name, (n, _) in PROBES.items()}


def known_methods(tree: ast.Module) -> set[str]:
    """Return the packages of single methods that a module imports, and the methods that it names by a text."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            texts = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            texts = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            texts = [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
        found |= {text for text in texts if text in MODULES.keys() - LAYERS}
        paths = [text.split(".") for text in texts if text.startswith("hopstate.methods.")]
        found |= {path[2] for path in paths if path[2] in PACKAGES}
    return found


def test_shared_rooms_know_no_single_method() -> None:
    own = tuple(f"methods/{package}/" for package in PACKAGES)
    found = {name: known_methods(tree) for name, tree in trees() if not name.startswith(own)}
    found = {name: known for name, known in found.items() if known}
    assert found == {name: known for name, (known, _) in KNOW_ONE.items()}, "declare in `Method`, or say why here"


def test_what_the_library_made_has_a_type_where_it_is_passed_on() -> None:
    found: Counter[tuple[str, str]] = Counter()
    for name, tree in trees():
        for node in ast.walk(tree):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            for given in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                if given.arg in OURS and given.annotation is not None and ast.unparse(given.annotation) == "Any":
                    found[name, given.arg] += 1
    assert not [key for key in found if key[1] not in UNTYPED.get(key[0], set())]


def test_generators_are_made_in_one_place() -> None:
    made = {"default_rng", "fork_rng", "manual_seed", "RandomState"}
    found = [
        (name, node.lineno)
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in made and name not in MADE
    ]
    assert not found, "take hopstate.random.named_rng, torch_rng or torch_seeded"


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> int:
    """Return how many lines of a function are neither its head, nor its docstring, nor blank."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return sum(bool(line.strip()) for line in lines[body[0].lineno - 1 : node.end_lineno]) if body else 0


def test_files_and_functions_stay_short() -> None:
    sizes, long = [], []
    for name, tree in trees():
        lines = (SOURCE / name).read_text().splitlines()
        sizes.append(sum(bool(line.strip()) for line in lines))
        functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
        long += [f"{name}: {node.name}" for node in functions if body_lines(node, lines) > 40]
    sizes.sort()
    assert sizes[len(sizes) // 2] <= 100, "the median file"
    assert sizes[int(0.9 * (len(sizes) - 1))] <= 230, "nine files of ten"
    assert sizes[-1] <= 320, "the longest file"
    assert len(long) <= 10, long
