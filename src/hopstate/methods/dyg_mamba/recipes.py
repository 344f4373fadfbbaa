"""DyG-Mamba: links on twelve streams, ablations, sequence lengths, classes of nodes.

Source: DyG-Mamba, arXiv:2408.06966; Tables 2 to 5 and 11 to 14, settings of its Tables 9 and 10.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hopstate.methods.baselines.recipes import DATA, DYGLIB, PAPER, SECONDS, TGB_NOTES, Rows, every_event, figures
from hopstate.methods.recipe import Recipe, percent, short

_LENGTH = (64, 64, 256, 512, 512, 64, 32, 2048, 272, 256, 128, 32)
_ROWS: dict[str, Rows] = {
    "average_precision": (
        (99.06, 0.01), (99.25, 0.00), (90.17, 0.19), (94.22, 0.04), (93.22, 0.03), (94.75, 0.01),
        (96.79, 0.08), (98.37, 0.07), (74.11, 2.32), (68.55, 0.16), (65.69, 1.10), (98.37, 0.01),
    ),
    "historical_average_precision": (
        (82.12, 1.22), (81.16, 0.11), (87.33, 1.46), (84.09, 0.44), (77.41, 1.13), (96.59, 0.28),
        (82.95, 2.24), (97.22, 0.29), (88.83, 0.34), (65.19, 0.19), (59.51, 3.08), (97.80, 0.14),
    ),
    "inductive_average_precision": (
        (84.64, 0.77), (91.89, 0.42), (81.15, 1.25), (74.76, 0.40), (79.90, 0.90), (96.91, 0.24),
        (73.71, 3.88), (96.58, 0.79), (85.03, 0.69), (61.88, 1.46), (57.63, 1.15), (94.57, 0.22),
    ),
    "new_average_precision": (
        (98.66, 0.02), (98.91, 0.01), (89.98, 0.04), (95.16, 0.05), (90.97, 0.01), (93.17, 0.05),
        (93.38, 0.21), (96.64, 0.04), (55.25, 4.54), (67.04, 0.20), (58.08, 0.55), (98.10, 0.02),
    ),
}  # fmt: skip
_NO_SPAN = {"model.block.step": "data"}
_NO_TIME = {"model.time_encoding": False}
_NO_COOCCURRENCE = {"model.cooccurrence": False}
# ablation → (settings, {data set: (mean, std)}, table)
_ABLATIONS: dict[str, tuple[dict[str, Any], dict[str, tuple[float, float]], str]] = {
    "no-timespan": (
        _NO_SPAN,
        {"can-parl": (96.90, 0.18), "enron": (92.14, 0.12), "us-legis": (72.26, 0.76)},
        "Table 5",
    ),
    "no-time-encoding": (
        _NO_TIME,
        {"can-parl": (97.80, 0.43), "enron": (92.83, 0.06), "us-legis": (73.33, 1.15)},
        "Table 5",
    ),
    "no-time": (
        {**_NO_SPAN, **_NO_TIME},
        {"can-parl": (96.87, 0.18), "enron": (92.08, 0.12), "us-legis": (72.19, 0.72)},
        "Table 5",
    ),
    "no-selective": (
        {"model.block.step": "fixed", "model.block.maps": "fixed"},
        {"can-parl": (96.32, 0.16), "enron": (91.33, 0.10), "us-legis": (71.62, 0.77)},
        "Table 5",
    ),
    "step-linear": (
        {"model.block.step_function": "linear"},
        {"can-parl": (94.64, 0.18), "enron": (91.13, 0.06), "us-legis": (70.28, 1.84)},
        "Table 6",
    ),
    "step-log": (
        {"model.block.step_function": "log"},
        {"can-parl": (97.18, 0.12), "enron": (92.35, 0.05), "us-legis": (72.46, 2.34)},
        "Table 6",
    ),
    "step-sigmoid": (
        {"model.block.step_function": "sigmoid"},
        {"can-parl": (95.84, 0.13), "enron": (92.26, 0.04), "us-legis": (72.15, 2.36)},
        "Table 6",
    ),
    "step-exponential": (
        {"model.block.step_function": "exponential"},
        {"can-parl": (94.68, 0.11), "enron": (90.84, 0.06), "us-legis": (71.23, 1.48)},
        "Table 6",
    ),
    "step-unnormalized": (
        {"model.block.step_function": "unnormalized"},
        {"can-parl": (97.32, 0.20), "enron": (92.46, 0.16), "us-legis": (72.45, 0.84)},
        "Table 6",
    ),
    "no-data-dependent": (
        {"model.block.maps": "span"},
        {"can-parl": (79.24, 0.58), "enron": (82.25, 0.16), "us-legis": (70.57, 0.84)},
        "Table 5",
    ),
    "no-cooccurrence": (
        _NO_COOCCURRENCE,
        {"uci": (93.09, 1.31), "us-legis": (73.53, 2.43), "un-trade": (66.32, 0.55)},
        "Table 13",
    ),
    "no-skip": (
        {"model.block.gate": False},
        {"uci": (95.37, 0.06), "us-legis": (73.64, 2.51), "un-trade": (67.64, 0.25)},
        "Table 13",
    ),
}
_LONGER = {
    "uci": {256: (96.82, 0.09), 512: (96.95, 0.06), 1024: (97.38, 0.05), 2048: (97.45, 0.03), 4096: (97.47, 0.08)},
    "us-legis": {32: (73.99, 1.52), 512: (74.17, 2.14), 1024: (74.34, 2.17), 2048: (74.47, 2.44), 4096: (74.96, 2.04)},
}
# what figure 9 varies, one at a time; it prints no values, so these are ours
_SENSITIVITY = {
    "blocks": ("model.num_layers", (1, 3, 4)),
    "state": ("model.block.state_dim", (4, 8, 32)),
    "expand": ("model.block.expand", (1, 3, 4)),
}
# what the paper's text (equations 7 to 10) and its Table 9 have beside the defaults; Table 9 names no number of heads
_PAIRS: dict[str, dict[str, Any]] = {
    "cross-attention": {"model.cross_attention": 2},
    "independent": {"model.encoders": "independent"},
}
_NODES = {"wikipedia": (88.58, 0.92), "reddit-temporal": (70.79, 1.97)}

# a higher rate that falls starts faster than the constant 1e-4 and is level with it after four epochs (uci, validation)
_FALLING: dict[str, Any] = {"loop__optim__lr": 3e-4, "loop__optim__schedule": "cosine", "loop__optim__warmup": 0.03}

# validation of a constant rate stands still after seven or eight epochs (uci); a falling rate lifts it once more
_ENDING: dict[str, Any] = {"loop.epochs": 12, "loop.optim.schedule": "linear", "loop.optim.hold": 0.8333}


def _settings(data: str, **more: Any) -> dict[str, Any]:
    return {**DYGLIB, **SECONDS, **every_event(data), "history.max_length": _LENGTH[DATA.index(data)], **more}


_LINKS = tuple(
    Recipe(
        name=f"dyg-mamba/{data}",
        method="dyg-mamba",
        data=data,
        metric="average_precision",
        settings=_settings(data),
        published=figures(_ROWS, i),
        note="the target node is a token of its own sequence, without which the equations cannot see a repetition",
    )
    for i, data in enumerate(DATA)
)
_PAIRED = tuple(
    replace(
        _LINKS[DATA.index(data)],
        name=f"dyg-mamba/{data}-{name}",
        settings=_settings(data, **settings),
        note="one layer of cross-attention, 2 heads" if name == "cross-attention" else "an encoder for each end",
    )
    for name, settings in _PAIRS.items()
    for data in ("uci", "enron")
)
_UCI_SHORT: dict[str, Any] = {"epochs": 4, "runs": 3, **_FALLING}
_ENRON_SHORT: dict[str, Any] = {"epochs": 1, "history__max_length": 32, "loop__matmul_precision": "medium", **_FALLING}

RECIPES = (
    *_LINKS,
    *_PAIRED,
    replace(
        _LINKS[DATA.index("uci")],
        name="dyg-mamba/uci-chosen",
        settings=_settings("uci", **_ENDING),
        runs=3,
        note="12 epochs where the paper trains up to 100, the learning rate falling to zero over the last two",
    ),
    *(
        short(recipe, **(_UCI_SHORT if recipe.data == "uci" else _ENRON_SHORT))
        for recipe in (_LINKS[DATA.index("uci")], _LINKS[DATA.index("enron")], *_PAIRED)
    ),
    *(
        Recipe(
            name=f"dyg-mamba/{data}-{name}",
            method="dyg-mamba",
            data=data,
            metric="average_precision",
            settings=_settings(data, **settings),
            published=(percent("average_precision", mean, std, 10, f"{PAPER}, {table}"),),
        )
        for name, (settings, rows, table) in _ABLATIONS.items()
        for data, (mean, std) in rows.items()
    ),
    *(
        Recipe(
            name=f"dyg-mamba/{data}-length-{length}",
            method="dyg-mamba",
            data=data,
            metric="average_precision",
            settings=_settings(data, **{"history.max_length": length}),
            published=(percent("average_precision", mean, std, 10, f"{PAPER}, Table 14"),),
        )
        for data, rows in _LONGER.items()
        for length, (mean, std) in rows.items()
    ),
    *(
        replace(
            _LINKS[DATA.index(data)],
            name=f"dyg-mamba/{data}-{name}-{value}",
            settings=_settings(data, **{setting: value}),
            published=(),
            note="sensitivity as in figure 9, which prints no values",
        )
        for name, (setting, values) in _SENSITIVITY.items()
        for value in values
        for data in ("enron", "can-parl")
    ),
    *(
        replace(
            _LINKS[DATA.index("can-parl")],
            name=f"dyg-mamba/can-parl-convergence{name}",
            settings=_settings("can-parl", **settings, **{"loop.epochs": 100, "loop.patience": None}),
            published=(),
            note="Table 7 compares the training loss of these 100 epochs, with and without time spans (vanilla Mamba)",
        )
        for name, settings in {"": {}, "-vanilla": {**_NO_SPAN, "model.block.spectral_bound": False}}.items()
    ),
    *(
        replace(
            _LINKS[DATA.index(data)],
            name=f"dyg-mamba/{data}-no-cooccurrence",
            settings=_settings(data, **_NO_COOCCURRENCE),
            published=(),
            note=f"the backbone of dyg-mamba/{data}-nodes-frozen: one node alone has no co-occurrence",
        )
        for data in _NODES
    ),
    *(
        Recipe(
            name=f"dyg-mamba/{data}-nodes",
            method="dyg-mamba-nodes",
            data=data,
            metric="roc_auc",
            settings={**SECONDS, "history.max_length": _LENGTH[DATA.index(data)]},
            published=(percent("roc_auc", mean, std, 10, f"{PAPER}, Table 11"),),
            note="trained end to end",
        )
        for data, (mean, std) in _NODES.items()
    ),
    *(
        Recipe(
            name=f"dyg-mamba/{data}-nodes-frozen",
            method="dyg-mamba-nodes",
            data=data,
            metric="roc_auc",
            settings={**SECONDS, "history.max_length": _LENGTH[DATA.index(data)]},
            published=(percent("roc_auc", mean, std, 10, f"{PAPER}, Table 11"),),
            first=f"dyg-mamba/{data}-no-cooccurrence",
            note="as published: an encoder that was trained on links and frozen, under a new head",
        )
        for data, (mean, std) in _NODES.items()
    ),
    Recipe(
        name="dyg-mamba/tgbl-coin",
        method="dyg-mamba",
        data="tgbl-coin",
        metric="many_mrr",
        settings={
            **SECONDS,
            "evaluation.strategies": ["many"],
            "evaluation.num_negatives": 20,
            "evaluation.max_events": "all",
            "max_events": "all",
        },
        published=(percent("many_mrr", 75.17, 0.38, 10, f"{PAPER}, Table 4"),),
        note=f"the length is not stated; {TGB_NOTES['tgbl-coin']}",
    ),
)
