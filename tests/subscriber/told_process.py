"""A forked process of the launcher that is only noted down."""

from __future__ import annotations


class ToldProcess:
    """A process that ends when told."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.killed = False

    def poll(self) -> int | None:
        return self.status

    def kill(self) -> None:
        self.killed = True

    def wait(self) -> int:
        assert self.killed
        return -9
