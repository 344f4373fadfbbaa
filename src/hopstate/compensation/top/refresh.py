"""When and how a compensation is made anew from a model's present weights, and what a checkpoint must hold of it."""

from __future__ import annotations

from torch import Tensor, nn

from hopstate.compensation.top.probes import Embed
from hopstate.compensation.top.top import Top
from hopstate.errors import CheckpointError


class Refresher:
    """Refreshes a compensation: often while weights move fast, then every so many epochs.

    A checkpoint holds the weights of the last two refreshes in place of what was made from them.

    Args:
        top: the compensation, prepared for model.
        model: as it was when `top` was prepared.
        embed: passes over the whole graph with the model.
        every: epochs between refreshes in the long run.
    """

    def __init__(self, top: Top, model: nn.Module, embed: Embed, every: int) -> None:
        self.top, self.model, self.embed, self.every = top, model, embed, every
        self.last = _weights(model)
        self.before: dict[str, Tensor] | None = None

    def due(self, epoch: int) -> bool:
        """Return whether an epoch begins with a refresh: epochs 1, 2, 4, ... and multiples of `every`."""
        return epoch > 0 and (epoch % self.every == 0 or (epoch < self.every and epoch & (epoch - 1) == 0))

    def __call__(self, model: nn.Module, epoch: int) -> None:
        if self.due(epoch):
            self.before, self.last = self.last, _weights(self.model)
            self.top.refresh(self.model, self.embed)

    def state(self) -> dict[str, Tensor]:
        """Return the weights of the last two refreshes."""
        named = {"last": self.last} if self.before is None else {"last": self.last, "before": self.before}
        return {f"{when}.{name}": tensor for when, weights in named.items() for name, tensor in weights.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` returned, and make from it what the compensation was.

        Raises:
            CheckpointError: weights of another model.
        """
        present = _weights(self.model)
        kept: dict[str, dict[str, Tensor]] = {}
        for name, tensor in state.items():
            when, key = name.split(".", 1)
            kept.setdefault(when, {})[key] = tensor
        if "last" not in kept or any(weights.keys() != present.keys() for weights in kept.values()):
            raise CheckpointError("the saved compensation is of another model; start the run anew")
        self.last, self.before, self.top.previous = kept["last"], kept.get("before"), None
        for weights in (self.before, self.last):
            if weights is not None:
                self.model.load_state_dict(weights)
                self.top.refresh(self.model, self.embed)
        self.model.load_state_dict(present)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
