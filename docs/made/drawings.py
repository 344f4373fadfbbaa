"""Draw the packages of the library and the path of a prediction, from the imports of the code.

    python docs/made/drawings.py            writes docs/images/packages.svg and docs/images/prediction.svg
    python docs/made/drawings.py --check    fails if they are not current

Packages are in the order of the import contract in pyproject.toml. A line leads from a package to each one that it
imports and does not reach through another package. In the path of a prediction, a full line connects two steps if the
package of the first imports the second.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hopstate"
IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT, ROW = 760, 34, 74
STYLE = (
    "<style>text{font:13px sans-serif;fill:#222}.s{font-size:11px;fill:#666}rect{fill:#eef2f5;stroke:#607d8b}"
    "line,path{stroke:#90a4ae;fill:none}</style>"
)
CAPTIONS = {
    "cli": "the command line", "serving": "online serving", "runs": "fit, predict, query",
    "methods": "one package each", "training": "training loop, tasks", "evaluation": "protocols, metrics",
    "streaming": "node memories, replay", "compensation": "GAS, TOP", "sampling": "batches, negatives",
    "layers": "modules on tensors", "tokens": "token sequences", "datasets": "names, generators",
    "data": "graphs, streams, readers", "io": "files", "ops": "operators", "random": "seeds",
    "types": "shapes", "errors": "exceptions",
}  # fmt: skip
# modules that `hopstate predict` uses, for nodes of a graph and for pairs of a stream
PATH = (
    ("cli.query", "hopstate predict RUN"),
    ("runs.inference", "opens the run, selects rows"),
    ("runs.load", "settings, weights and data of the run"),
    ("runs.data", "features scaled as in training"),
    ("methods.{}.method", "model and task from the settings"),
    ("training.tasks.{}", "batches, outputs, table columns"),
)
NODES = ("nagphormer", "node", (("methods.nagphormer.hops", "hop averages"), ("ops.propagate", "compiled loop")))
LINKS = (
    "dyg_mamba",
    "link",
    (("streaming.history_scorer", "histories before each query"), ("data.neighbor_store", "neighbor queries")),
)


def layers() -> list[list[str]]:
    """Return the packages by layer, the highest first."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    packages = next(c for c in config["contracts"] if c.get("containers") == ["hopstate"])
    return [[package.strip() for package in layer.split("|")] for layer in packages["layers"]]


def imports() -> dict[str, set[str]]:
    """Return the imports of each module, also inside functions, as names without "hopstate."."""
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        targets = found.setdefault(name, set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hopstate."):
                module = str(node.module).removeprefix("hopstate.")
                targets |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return {name: {t for t in targets if t in found and t != name} for name, targets in found.items()}


def packages() -> str:
    """Return the drawing of the packages."""
    place = {package: (i, j, len(level)) for i, level in enumerate(layers()) for j, package in enumerate(layers()[i])}
    reached: dict[str, set[str]] = {package: set() for package in place}
    for name, targets in imports().items():
        package = name.split(".")[0]
        reached.get(package, set()).update({target.split(".")[0] for target in targets} & place.keys() - {package})
    parts = []
    for package, targets in reached.items():
        for target in sorted(targets - set().union(*(_reachable(reached, other) for other in targets))):
            (x0, y0), (x1, y1) = _center(*place[package]), _center(*place[target])
            parts.append(f'<line x1="{x0}" y1="{y0 + HEIGHT // 2}" x2="{x1}" y2="{y1 - HEIGHT // 2}"/>')
    return _svg(
        ROW * len(layers()),
        [*parts, *(_box(*_center(*place[package]), package, CAPTIONS[package]) for package in place)],
    )


def _reachable(reached: dict[str, set[str]], package: str) -> set[str]:
    """Return all packages that a package imports, directly or not."""
    return set().union(reached[package], *(_reachable(reached, other) for other in reached[package]))


def prediction() -> str:
    """Return the drawing of the path of a prediction: nodes on the left, links on the right.

    Raises:
        LookupError: a module of the path does not exist.
    """
    modules, parts = imports(), []
    for column, (method, task, own) in enumerate((NODES, LINKS)):
        path = [(name.format(task if "tasks" in name else method), caption) for name, caption in PATH] + list(own)
        x = WIDTH // 4 + column * WIDTH // 2
        for i, (name, caption) in enumerate(path):
            if not any(module == name or module.startswith(f"{name}.") for module in modules):
                raise LookupError(f"the module {name} of the path does not exist")
            y = HEIGHT + ROW * i
            if i:
                ends = f'x1="{x}" y1="{y - ROW + HEIGHT // 2}" x2="{x}" y2="{y - HEIGHT // 2}"'
                parts.append(f"<line {ends} {_solid(modules, path, i)}/>")
            parts.append(_box(x, y, name, caption, wide=300))
    return _svg(ROW * (len(PATH) + 2), parts)


def _solid(modules: dict[str, set[str]], path: list[tuple[str, str]], i: int) -> str:
    """Return the attributes of the line to step i: full if its package is imported, otherwise dashed."""
    upper, lower = path[i - 1][0], path[i][0]
    package = upper.split(".")[0]
    reaches = any(
        target == lower or target.startswith(f"{lower}.")
        for module, targets in modules.items() if module.split(".")[0] == package for target in targets
    )  # fmt: skip
    return 'stroke-width="2"' if reaches else 'stroke-width="2" stroke-dasharray="4 4"'


def _center(level: int, number: int, count: int) -> tuple[int, int]:
    return WIDTH * (2 * number + 1) // (2 * count), HEIGHT + ROW * level


def _box(x: int, y: int, name: str, caption: str, wide: int = 150) -> str:
    return (
        f'<rect x="{x - wide // 2}" y="{y - HEIGHT // 2}" width="{wide}" height="{HEIGHT}" rx="4"/>'
        f'<text x="{x}" y="{y - 2}" text-anchor="middle">{name}</text>'
        f'<text class="s" x="{x}" y="{y + 12}" text-anchor="middle">{caption}</text>'
    )


def _svg(height: int, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">'
    return "\n".join([head, STYLE, *parts, "</svg>", ""])


DRAWINGS = {"packages.svg": packages, "prediction.svg": prediction}

if __name__ == "__main__":
    for file, draw in DRAWINGS.items():
        if "--check" not in sys.argv:
            (IMAGES / file).write_text(draw(), encoding="utf-8")
        elif (IMAGES / file).read_text(encoding="utf-8") != draw():
            sys.exit(f"docs/images/{file} is old: python docs/made/drawings.py")
