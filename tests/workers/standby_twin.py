"""A standby that is promoted while a worker reads from it."""

from __future__ import annotations

from catalog.pg_lsn import LSN
from workers.publisher.interfaces import Row, SystemIdentity


class StandbyTwin:
    """Is on another timeline when it was asked so often after the first time."""

    def __init__(self, asked: int) -> None:
        self.left = asked + 1

    def identify_system(self) -> SystemIdentity:
        self.left -= 1
        return SystemIdentity("1", 1 if self.left >= 0 else 2, LSN(1000), "shop", 16384)

    @property
    def server_version(self) -> int:
        return 18

    def exec(self, sql: str) -> list[Row]:
        raise AssertionError(sql)

    def timeline_history(self, tli: int) -> str:
        raise AssertionError(tli)
