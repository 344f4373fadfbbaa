"""NAGphormer and message-passing baselines on citation, co-purchase and co-author graphs.

Source: Chen et al., ICLR 2023, arXiv:2206.04910, Tables 1 and 2 and Appendix D.2.
"""

from __future__ import annotations

from typing import Any

from hopstate.methods.recipe import SPLITS, Published, Recipe, percent

_SEARCHED = "the paper searches layers, width, hops, learning rate, weight decay and dropout; these are from its ranges"
_OWN = "no paper reports this row with these splits; settings for one CPU core"
# data set → published mean and standard deviation in percent (None: not looked up)
_PUBLISHED: dict[str, tuple[float, float | None] | None] = {
    "pubmed": (89.70, None),
    "corafull": None,
    "computer": (91.22, 0.14),
    "photo": (95.49, 0.11),
    "cs": (95.75, 0.09),
    "physics": (97.34, 0.03),
    "aminer-cs": None,  # the large sets: published on splits of so many nodes a class, whose numbers were not verified
    "reddit": None,
    "amazon2m": None,
}
_COUNTS = "; 20 and 30 nodes of each class, numbers not verified: no published figure beside it"
_LARGE = ("aminer-cs", "reddit", "amazon2m")
_SMALL_NAGPHORMER = {
    "model.dim": 128,
    "tokens.num_hops": 3,
    "tokens.eigenvectors": 0,
    "loop.epochs": 60,
    "loop.patience": 20,
}
_SMALL: dict[str, Any] = {
    "model.dim": 128,
    "model.num_layers": 2,
    "model.dropout": 0.5,
    "loop.epochs": 100,
    "loop.patience": 50,
    "loop.eval_every": 2,
}


def _figure(data: str) -> tuple[Published, ...]:
    known = _PUBLISHED.get(data)
    return () if known is None else (percent("accuracy", *known, 10, "Chen et al. 2023 (NAGphormer), Table 1"),)


RECIPES = (
    *(
        Recipe(
            name=f"nagphormer/{data}",
            method="nagphormer",
            data=data,
            metric="accuracy",
            settings={
                **({"tokens.num_hops": 16, "model.num_layers": 3} if data == "aminer-cs" else {}),
                **({"split.per_class": [20, 30]} if data in _LARGE else {}),
            },
            published=_figure(data),
            vary=SPLITS,
            note=_SEARCHED + (_COUNTS if data in _LARGE else ""),
        )
        for data in _PUBLISHED
    ),
    *(
        Recipe(
            name=f"nagphormer/{data}-small",
            method="nagphormer",
            data=data,
            metric="accuracy",
            settings={**_SMALL_NAGPHORMER, "model.dropout": dropout},
            published=_figure(data),
            vary=SPLITS,
            runs=3,
            note="width 128, 3 hops, no eigenvectors, 60 epochs, for one CPU core",
        )
        for data, dropout in (("cora", 0.5), ("photo", 0.3))
    ),
    *(
        Recipe(
            name=f"{method}/{data}",
            method=method,
            data=data,
            metric="accuracy",
            settings=_SMALL,
            vary=SPLITS,
            runs=3,
            note=_OWN,
        )
        for data in ("cora", "photo")
        for method in ("mlp", "gcn", "sage", "gin", "gat", "pna", "gcnii")
    ),
)
