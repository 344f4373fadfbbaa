"""Draw the packages of the library and the path of a prediction, from the imports of the code.

    python docs/made/drawings.py            writes docs/images/rooms.svg and docs/images/prediction.svg
    python docs/made/drawings.py --check    fails where they are others

Rooms stand in the order of the import contract in pyproject.toml. A line leads down from a room to one that it imports,
where it does not come there by way of another. Two steps of a prediction's way are joined by a full line where the room
of the first imports the second.
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
    "line,path{stroke:#90a4ae;fill:none}@media(prefers-color-scheme:dark){text{fill:#eee}.s{fill:#aaa}"
    "rect{fill:#263238}}</style>"
)
HOLDS = {
    "cli": "the command line", "serving": "a trained run, asked", "runs": "from settings to answers",
    "methods": "one package each", "training": "the loop and its tasks", "evaluation": "protocols, metrics",
    "streaming": "what moves through time", "compensation": "GAS, TOP", "sampling": "batches, negatives",
    "layers": "modules on tensors", "tokens": "records to tokens", "datasets": "names, generators",
    "data": "records, readers", "io": "bytes and disk", "ops": "pure functions", "random": "seeds",
    "types": "shapes", "errors": "all of them",
}  # fmt: skip
# what `hopstate predict` goes through for nodes of a graph, and for the pairs of a stream
WAY = (
    ("cli.query", "hopstate predict RUN"),
    ("runs.inference", "finds the run, and which rows are asked for"),
    ("runs.load", "settings, weights and data as the run had them"),
    ("runs.data", "features scaled as in training"),
    ("methods.{}.method", "model and task from the settings"),
    ("training.tasks.{}", "batches, outputs, columns of a table"),
)
NODES = ("nagphormer", "node", (("methods.nagphormer.hops", "hop averages"), ("ops.propagate", "compiled loop")))
LINKS = (
    "dyg_mamba",
    "link",
    (("streaming.history_scorer", "histories before each query"), ("data.neighbor_store", "look-ups")),
)


def layers() -> list[list[str]]:
    """Return the rooms by layer, the highest first."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    rooms = next(c for c in config["contracts"] if c.get("containers") == ["hopstate"])
    return [[room.strip() for room in layer.split("|")] for layer in rooms["layers"]]


def imports() -> dict[str, set[str]]:
    """Return module → modules of the library that it imports, within functions too, both without "hopstate."."""
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        targets = found.setdefault(name, set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hopstate."):
                module = str(node.module).removeprefix("hopstate.")
                targets |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return {name: {t for t in targets if t in found and t != name} for name, targets in found.items()}


def rooms() -> str:
    """Return the drawing of the rooms."""
    place = {room: (i, j, len(level)) for i, level in enumerate(layers()) for j, room in enumerate(layers()[i])}
    reached: dict[str, set[str]] = {room: set() for room in place}
    for name, targets in imports().items():
        room = name.split(".")[0]
        reached.get(room, set()).update({target.split(".")[0] for target in targets} & place.keys() - {room})
    parts = []
    for room, targets in reached.items():
        for target in sorted(targets - set().union(*(_below(reached, other) for other in targets))):
            (x0, y0), (x1, y1) = _center(*place[room]), _center(*place[target])
            parts.append(f'<line x1="{x0}" y1="{y0 + HEIGHT // 2}" x2="{x1}" y2="{y1 - HEIGHT // 2}"/>')
    return _svg(ROW * len(layers()), [*parts, *(_box(*_center(*place[room]), room, HOLDS[room]) for room in place)])


def _below(reached: dict[str, set[str]], room: str) -> set[str]:
    """Return all rooms that a room comes to by way of imports."""
    return set().union(reached[room], *(_below(reached, other) for other in reached[room]))


def prediction() -> str:
    """Return the drawing of a prediction's way: of nodes on the left, of links on the right.

    Raises:
        LookupError: no module of a step's package imports the next's.
    """
    known, parts = imports(), []
    for column, (method, task, own) in enumerate((NODES, LINKS)):
        way = [(name.format(task if "tasks" in name else method), said) for name, said in WAY] + list(own)
        x = WIDTH // 4 + column * WIDTH // 2
        for i, (name, said) in enumerate(way):
            if not any(module == name or module.startswith(f"{name}.") for module in known):
                raise LookupError(f"there is no module {name} on a prediction's way")
            y = HEIGHT + ROW * i
            if i:
                ends = f'x1="{x}" y1="{y - ROW + HEIGHT // 2}" x2="{x}" y2="{y - HEIGHT // 2}"'
                parts.append(f"<line {ends} {_solid(known, way, i)}/>")
            parts.append(_box(x, y, name, said, wide=300))
    return _svg(ROW * (len(WAY) + 2), parts)


def _solid(known: dict[str, set[str]], way: list[tuple[str, str]], i: int) -> str:
    """Return a full line where the step's room imports the next's, a dashed one where it is handed over."""
    upper, lower = way[i - 1][0], way[i][0]
    room = upper.split(".")[0]
    reaches = any(
        target == lower or target.startswith(f"{lower}.")
        for module, targets in known.items() if module.split(".")[0] == room for target in targets
    )  # fmt: skip
    return 'stroke-width="2"' if reaches else 'stroke-width="2" stroke-dasharray="4 4"'


def _center(level: int, number: int, count: int) -> tuple[int, int]:
    return WIDTH * (2 * number + 1) // (2 * count), HEIGHT + ROW * level


def _box(x: int, y: int, name: str, said: str, wide: int = 150) -> str:
    return (
        f'<rect x="{x - wide // 2}" y="{y - HEIGHT // 2}" width="{wide}" height="{HEIGHT}" rx="4"/>'
        f'<text x="{x}" y="{y - 2}" text-anchor="middle">{name}</text>'
        f'<text class="s" x="{x}" y="{y + 12}" text-anchor="middle">{said}</text>'
    )


def _svg(height: int, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">'
    return "\n".join([head, STYLE, *parts, "</svg>", ""])


DRAWINGS = {"rooms.svg": rooms, "prediction.svg": prediction}

if __name__ == "__main__":
    for file, draw in DRAWINGS.items():
        if "--check" not in sys.argv:
            (IMAGES / file).write_text(draw(), encoding="utf-8")
        elif (IMAGES / file).read_text(encoding="utf-8") != draw():
            sys.exit(f"docs/images/{file} is old: python docs/made/drawings.py")
