"""Settings of TOP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hopstate.errors import ConfigError, check_range


@dataclass(frozen=True, kw_only=True)
class TopConfig:
    """Settings of TOP.

    Args:
        form: "linear" adds a low-rank product, "general" makes missing rows; "auto" is linear where the model allows.
        basis: one basis of the whole graph ("global"), or one for each batch ("batch", as in the paper's text).
        layers: "each" expresses the messages of each layer by what that layer receives, "shared" those of all layers
            by one basis of them together (as in the paper's text).
        rank: k, most columns of a basis; null takes as many as one set of weights gives, with directions up to four
            times as many (basis=batch: the width d of a layer's messages).
        refresh: make the basis from the model's weights at the start, and anew after 1, 2, 4, ... epochs and then every
            so many; 0 makes it once, from random weights.
        directions: express also how messages change when the weights do, in so many random directions (8, say): the
            gradient of the layers below passes through missing neighbours by that. It helps batches of many times more
            nodes than the model is wide; every direction is one more pass over the graph a refresh.
        initialisations: random initialisations whose embeddings are joined where nothing is refreshed.
        samples: |S|, most in-batch nodes that missing ones are expressed by; null takes all (basis=batch: k).
        ridge: added to the mean diagonal of the normal equations, as a share of it; null chooses it for each batch.
        folder: keep what was prepared for each batch in files there and continue from them; needs refresh=0.
    """

    form: Literal["auto", "linear", "general"] = "auto"
    basis: Literal["global", "batch"] = "global"
    layers: Literal["each", "shared"] = "each"
    rank: int | None = None
    refresh: int = 5
    directions: int = 0
    initialisations: int = 3
    samples: int | None = None
    ridge: float | None = None
    folder: str | None = None

    def __post_init__(self) -> None:
        check_range("top.", least=1, rank=self.rank, initialisations=self.initialisations, samples=self.samples)
        check_range("top.", least=0, refresh=self.refresh, directions=self.directions, ridge=self.ridge)
        if self.directions and not self.refresh:
            raise ConfigError(f"top.directions={self.directions} needs refreshes; got top.refresh={self.refresh}")
        if self.folder is not None and self.refresh:
            raise ConfigError(
                f"top.folder keeps what is made once, but top.refresh={self.refresh} makes it anew; set top.refresh=0"
            )
