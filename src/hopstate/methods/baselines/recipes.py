"""Dynamic link prediction: recency, EdgeBank, GraphMixer, DyGFormer, in DyGLib's split, negatives and metric.

Source: DyG-Mamba, arXiv:2408.06966, Tables 2 and 3 (its baselines were run with DyGLib, arXiv:2303.13047, whose
settings are used here).
"""

from __future__ import annotations

from typing import Any

from hopstate.methods.recipe import Published, Recipe, percent, short

DYGLIB = {"split.kind": "dyglib", "evaluation.protocol": "dyglib"}
_LARGE = ("social-evo", "contact")  # over a million training events, all of which an epoch of the papers takes
SECONDS = {"gap_unit": "seconds"}  # as DyGLib and the papers take times
TGB_NOTES = {
    "tgbl-wiki": "negatives are all destinations not met at the time, as TGB's; nothing is drawn",
    "tgbl-coin": "20 negatives an event, drawn by TGB's rule; the draw is ours, not TGB's (pickled) files",
}
PAPER = "DyG-Mamba 2024"
# the order of the rows below
DATA = (
    "wikipedia",
    "reddit-temporal",
    "mooc",
    "lastfm",
    "enron",
    "social-evo",
    "uci",
    "can-parl",
    "us-legis",
    "un-trade",
    "un-vote",
    "contact",
)
Rows = tuple[tuple[float, float], ...]
# AP in percent, transductive: random, historical, inductive negatives; then inductive with random negatives
GRAPHMIXER: dict[str, Rows] = {
    "average_precision": (
        (97.25, 0.03), (97.31, 0.01), (82.78, 0.15), (75.61, 0.24), (82.25, 0.16), (93.37, 0.07),
        (93.25, 0.57), (77.04, 0.46), (70.74, 1.02), (62.61, 0.27), (52.11, 0.16), (91.92, 0.03),
    ),
    "historical_average_precision": (
        (90.90, 0.10), (78.44, 0.18), (77.77, 0.92), (72.47, 0.49), (77.98, 0.92), (94.93, 0.31),
        (84.11, 1.35), (74.34, 0.87), (81.65, 1.02), (57.05, 1.22), (51.20, 1.60), (93.36, 0.41),
    ),
    "inductive_average_precision": (
        (88.59, 0.17), (85.26, 0.11), (74.27, 0.92), (68.12, 0.33), (75.01, 0.79), (94.72, 0.33),
        (80.10, 0.51), (69.48, 0.63), (79.63, 0.84), (60.15, 1.29), (51.60, 0.73), (90.87, 0.35),
    ),
    "new_average_precision": (
        (96.65, 0.02), (95.26, 0.02), (81.41, 0.21), (82.11, 0.42), (75.88, 0.48), (91.86, 0.06),
        (91.19, 0.42), (55.91, 0.82), (50.71, 0.76), (62.17, 0.31), (50.68, 0.44), (90.59, 0.05),
    ),
}  # fmt: skip
DYGFORMER: dict[str, Rows] = {
    "average_precision": (
        (99.03, 0.02), (99.22, 0.01), (87.52, 0.49), (93.00, 0.12), (92.47, 0.12), (94.73, 0.01),
        (95.79, 0.17), (97.36, 0.45), (71.11, 0.59), (66.46, 1.29), (55.55, 0.42), (98.29, 0.01),
    ),
    "historical_average_precision": (
        (82.23, 2.54), (81.57, 0.67), (85.85, 0.66), (81.57, 0.48), (75.63, 0.73), (97.38, 0.14),
        (82.17, 0.82), (97.00, 0.31), (85.30, 3.88), (64.41, 1.40), (60.84, 1.58), (97.57, 0.06),
    ),
    "inductive_average_precision": (
        (78.29, 5.38), (91.11, 0.40), (81.24, 0.69), (73.97, 0.50), (77.41, 0.89), (97.68, 0.10),
        (72.25, 1.71), (95.44, 0.57), (81.25, 3.62), (55.79, 1.02), (51.91, 0.84), (94.75, 0.28),
    ),
    "new_average_precision": (
        (98.59, 0.03), (98.84, 0.02), (86.96, 0.43), (94.23, 0.09), (89.76, 0.34), (93.14, 0.04),
        (94.54, 0.12), (87.74, 0.71), (54.28, 2.87), (64.55, 0.62), (55.93, 0.39), (98.03, 0.02),
    ),
}  # fmt: skip
EDGEBANK = {
    "random": (90.37, 94.86, 57.97, 79.29, 83.53, 74.95, 76.20, 64.55, 58.39, 60.41, 58.49, 92.58),
    "historical": (73.35, 73.59, 60.71, 73.03, 76.53, 80.57, 65.50, 63.84, 63.22, 81.32, 84.89, 88.81),
    "inductive": (80.63, 85.48, 49.43, 75.49, 73.89, 83.69, 57.43, 62.16, 64.74, 72.97, 66.30, 85.20),
}
# DyGLib's choice of memory, in the order of DATA: unlimited, window (proportion or repeat), threshold
_MEMORY = {"random": "UUPPPTUPPRRR", "historical": "TTRRRTPPPRRR", "inductive": "TTTTTTRTPTRT"}
_EDGEBANK: dict[str, dict[str, Any]] = {
    "U": {"model.memory": "unlimited"},
    "P": {"model.memory": "window", "model.window": "proportion"},
    "R": {"model.memory": "window", "model.window": "repeat"},
    "T": {"model.memory": "threshold"},
}
# GraphMixer: links, dropout; DyGFormer: length, patch, dropout; in the order of DATA
_MIXER = ((30, 0.5), (10, 0.5), (20, 0.4), (10, 0.0), (20, 0.5), (20, 0.3), (20, 0.4), (20, 0.2), (20, 0.4), (20, 0.1),
          (20, 0.0), (20, 0.1))  # fmt: skip
_FORMER = ((32, 1, 0.1), (64, 2, 0.2), (256, 8, 0.1), (512, 16, 0.1), (256, 8, 0.0), (32, 1, 0.1), (32, 1, 0.1),
           (2048, 64, 0.1), (256, 8, 0.0), (256, 8, 0.0), (128, 4, 0.2), (32, 1, 0.0))  # fmt: skip


def every_event(data: str) -> dict[str, Any]:
    """Return the setting by which an epoch takes all training events of a data set of `DATA`."""
    return {"max_events": "all"} if data in _LARGE else {}


def figures(rows: dict[str, Rows], number: int, runs: int = 10) -> tuple[Published, ...]:
    """Return the published AP of one data set, transductive (Table 2) and inductive (Table 3)."""
    return tuple(
        percent(
            metric, *values[number], runs, f"{PAPER}, {'Table 3' if metric == 'new_average_precision' else 'Table 2'}"
        )
        for metric, values in rows.items()
    )


def _edgebank(strategy: str, number: int, data: str) -> Recipe:
    metric = "average_precision" if strategy == "random" else f"{strategy}_average_precision"
    return Recipe(
        name=f"edgebank/{data}" + ("" if strategy == "random" else f"-{strategy}"),
        method="edgebank",
        data=data,
        metric=metric,
        settings={**DYGLIB, "evaluation.strategies": [strategy], **_EDGEBANK[_MEMORY[strategy][number]]},
        published=(percent(metric, EDGEBANK[strategy][number], None, 0, f"{PAPER}, Table 2"),),
        runs=1,
        note="deterministic; DyGLib chooses the memory for each data set and kind of negatives",
    )


_GRAPHMIXER = tuple(
    Recipe(
        name=f"graphmixer/{data}",
        method="graphmixer",
        data=data,
        metric="average_precision",
        settings={
            **DYGLIB,
            **SECONDS,
            **every_event(data),
            "model.num_links": _MIXER[i][0],
            "model.dropout": _MIXER[i][1],
        },
        published=figures(GRAPHMIXER, i),
        note="the most recent links throughout; DyGLib draws them at random on can-parl, un-trade and un-vote",
    )
    for i, data in enumerate(DATA)
)
_DYGFORMER = tuple(
    Recipe(
        name=f"dygformer/{data}",
        method="dygformer",
        data=data,
        metric="average_precision",
        settings={
            **DYGLIB,
            **SECONDS,
            **every_event(data),
            "model.max_length": _FORMER[i][0],
            "model.patch_size": _FORMER[i][1],
            "model.dropout": _FORMER[i][2],
        },
        published=figures(DYGFORMER, i),
    )
    for i, data in enumerate(DATA)
)

RECIPES = (
    *(
        Recipe(
            name=f"recency/{data}",
            method="recency",
            data=data,
            metric="average_precision",
            settings=DYGLIB,
            runs=1,
            note="deterministic; reported by no paper, and the floor to stand above",
        )
        for data in DATA
    ),
    *(_edgebank(strategy, number, data) for strategy in EDGEBANK for number, data in enumerate(DATA)),
    *_GRAPHMIXER,
    *_DYGFORMER,
    short(_GRAPHMIXER[DATA.index("uci")], epochs=5),
    short(_GRAPHMIXER[DATA.index("enron")], epochs=2, loop__matmul_precision="medium"),
    short(_DYGFORMER[DATA.index("uci")], epochs=1),
    short(_DYGFORMER[DATA.index("enron")], epochs=1, loop__matmul_precision="medium"),
)
