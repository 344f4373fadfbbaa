"""What stands around a model's tokenizer, and adds to its input."""

from __future__ import annotations

from typing import Generic

from hopstate.data.neighbor_store import Histories
from hopstate.streaming.history_scorer import TokenizerT


class AroundTokenizer(Generic[TokenizerT]):
    """A tokenizer with another inside, whose events it has.

    Args:
        inner: the other one.
    """

    def __init__(self, inner: TokenizerT) -> None:
        self.inner = inner

    @property
    def deletions(self) -> bool:
        """Whether deletions stand in the store."""
        return self.inner.deletions

    @property
    def marked(self) -> bool:
        """Whether the last feature of an event says that it is a deletion."""
        return self.inner.marked

    @property
    def store(self) -> Histories:
        """The histories that the inner tokens are looked up in."""
        return self.inner.store

    @store.setter
    def store(self, store: Histories) -> None:
        self.inner.store = store
        self.moved(store)

    def moved(self, store: Histories) -> None:
        """Follow the inner tokenizer to another store; there is nothing to do by default."""
