"""A log whose commits wait until a test lets them pass."""

import threading
from typing import Any

from hopstate.serving.log import SqliteLog


class GatedLog(SqliteLog):
    """`begun` is set when a commit starts to wait, and commits pass once `leave` is set."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.begun, self.leave = threading.Event(), threading.Event()

    def append(self, *args: Any) -> int:
        self.begun.set()
        assert self.leave.wait(60)
        return super().append(*args)
