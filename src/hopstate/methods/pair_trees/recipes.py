"""Trees over the histories of pairs: DyGLib's split and negatives, average precision pooled over the test split.

No paper reports this method; the published figures of learned models stand in `links` and `dyg_mamba`.
"""

from __future__ import annotations

from hopstate.methods.recipe import Recipe

RECIPES = tuple(
    Recipe(
        name=f"pair-trees/{data}",
        method="pair-trees",
        data=data,
        metric="average_precision",
        settings={"split.kind": "dyglib"},
        runs=5,
        note="one set of trees for all kinds of negatives, everything chosen on validation; seeds draw the negatives",
    )
    for data in ("uci", "enron")
)
