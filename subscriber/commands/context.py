"""The context of a command: catalog, publisher, lake, launcher, and a receiver of notices.

A command takes the context as an argument and opens nothing: the tests pass twins. The lake is
opened on first use: a command without a lake table starts no server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore
from config.guc import Settings, stored_settings
from subscriber.messages import Notice
from workers.lake.destination import Destination
from workers.lake.table import LakeIdent, LakeTable
from workers.publisher.interfaces import ReplicationConn


class Worker(Protocol):
    """A worker slot of the launcher, as commands see it."""

    @property
    def subid(self) -> int:
        """The worker's subscription."""

    @property
    def pid(self) -> int | None:
        """The worker's process id."""


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Everything a command may touch; see the module."""

    data_dir: Path
    store: CatalogStore
    connect: Callable[[Subscription], ReplicationConn]
    lake: Callable[[], Destination]
    lake_tables: Callable[[Sequence[LakeIdent]], list[LakeTable | None]]  # what main holds of each
    # 0A000 if the lake's catalog cannot keep rows exact; why workers cannot write new tables' files
    probe_lake: Callable[[], str | None]
    # a copy follows: starts what the copy needs if a table is large
    expect_copy: Callable[[Callable[[], bool]], None]
    workers: Callable[[], Sequence[Worker]]  # of the running launcher; none without one
    wake_launcher: Callable[[], None]  # the catalog was changed; returns at once
    wait_until_workers_reload: Callable[
        [int], None
    ]  # its workers read the catalog, or are gone; 55006 if late
    stop_sync_worker: Callable[[int, int], None]  # of (subid, relid); returns when it is gone
    workers_stopped: Callable[
        [int], AbstractContextManager[None]
    ]  # no worker of the subscription runs inside
    notify: Callable[[Notice], None]
    lake_writer: str = "auto"  # of the command's file, or in force

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return stored_settings(self.store.settings())
