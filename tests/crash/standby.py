"""A standby of an embedded publisher: made by ``pg_basebackup``, promoted when a test says so."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from subscriber.demo.embedded_postgres import (
    EmbeddedPublisher,
    _give_to_server,
    _run_tool,
)
from tests.ports import free_port
from tests.waiting import wait_until
from workers.publisher.connect import connect


class Pair:
    """A server that runs and a place for its standby, whose port is known before it is made."""

    def __init__(self, primary: EmbeddedPublisher) -> None:
        self.primary = primary
        self.port = free_port()

    def conninfo(self, dbname: str) -> str:
        """Whichever of the two takes writes."""
        return (
            f"host=127.0.0.1,127.0.0.1 port={self.primary.port},{self.port} user=postgres "
            f"dbname={dbname} target_session_attrs=read-write"
        )

    @contextmanager
    def standby(
        self, *, port: int | None = None, slot: str | None = None
    ) -> Iterator[EmbeddedPublisher]:
        """One that has caught up; the primary runs again when it is gone. ``port`` 0: a free one,
        for one more than the pair. ``slot``: a physical one on the primary, without which no
        logical slot is synchronised."""
        conf: dict[str, str | int] = {"hot_standby_feedback": "on"}
        if slot is not None:
            self.primary.execute("SELECT pg_create_physical_replication_slot(%s, true)", (slot,))
            conf["primary_slot_name"] = slot
        server = EmbeddedPublisher(
            18,
            port=self.port if port is None else port,
            data_dir=self.backup("-R"),
            conf=conf,
        )
        with server:
            self.caught_up(server)
            yield server
        self.primary.start()
        if slot is not None:
            self.primary.execute("SELECT pg_drop_replication_slot(%s)", (slot,))

    def synchronise(self, standby: EmbeddedPublisher, *names: str) -> None:
        """The standby has logical slots of the primary, and would have them as a primary too.

        One becomes permanent there when the primary's has moved past what the standby can keep.
        """
        ready = (
            "SELECT count(*) FROM pg_replication_slots WHERE slot_name = ANY(%s)"
            " AND synced AND NOT temporary AND invalidation_reason IS NULL"
        )

        def synchronised() -> bool:
            standby.execute("SELECT pg_sync_replication_slots()")
            return bool(standby.execute(ready, (list(names),))[0][0] == len(names))

        with not_idle(self.primary):
            wait_until(synchronised, 60, "the standby has the slots")

    def backup(self, *options: str) -> Path:
        """The data directory of a backup of the primary as it is now."""
        folder = Path(tempfile.mkdtemp(dir=self.primary.data_dir.parent))
        _give_to_server(folder)
        data = folder / "data"
        _run_tool(
            self.primary.bin_dir / "pg_basebackup",
            *("-D", str(data), *options, "-X", "stream", "-c", "fast", "--no-sync"),
            *("-d", self.primary.dsn),
        )
        return data

    @contextmanager
    def restored(self, backup: Path) -> Iterator[EmbeddedPublisher]:
        """What was backed up, in the primary's place, which runs again when it is gone."""
        self.primary.halt("fast")
        try:
            with EmbeddedPublisher(18, port=self.primary.port, data_dir=backup) as server:
                yield server
        finally:
            self.primary.start()

    def caught_up(self, standby: EmbeddedPublisher) -> None:
        """The standby has replayed all that the primary has written by now."""
        there = self.primary.execute("SELECT pg_current_wal_lsn()::text")[0][0]
        replayed = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_until(lambda: standby.execute(replayed, (there,))[0][0], 60, "the standby replays")

    def make_slot(self, standby: EmbeddedPublisher, dbname: str, name: str) -> None:
        """A logical slot on the standby, which waits for what only the primary can write."""

        with not_idle(self.primary), closing(connect(standby.conninfo(dbname), name)) as conn:
            conn.create_slot(name, temporary=False, snapshot="nothing", timeout=60)


@contextmanager
def not_idle(primary: EmbeddedPublisher) -> Iterator[None]:
    """The primary goes on writing what slots on its standbys wait for."""
    done = threading.Event()

    def write() -> None:
        with primary.connect() as connection:
            while not done.wait(0.1):
                connection.execute("SELECT pg_log_standby_snapshot()")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def promote(standby: EmbeddedPublisher) -> None:
    """It takes writes when this returns."""
    assert standby.execute("SELECT pg_promote(true, 60)")[0][0]


def follow(standby: EmbeddedPublisher, primary: EmbeddedPublisher) -> None:
    """It receives from another server than before; returns when it replays that one's timeline."""
    standby.execute(f"ALTER SYSTEM SET primary_conninfo = '{primary.dsn}'")
    standby.execute("SELECT pg_reload_conf()")
    timeline = "SELECT received_tli FROM pg_stat_wal_receiver WHERE status = 'streaming'"
    there = primary.execute("SELECT timeline_id FROM pg_control_checkpoint()")
    wait_until(lambda: standby.execute(timeline) == there, 60, "the standby follows")


def cut_off(standby: EmbeddedPublisher) -> None:
    """It receives nothing any more."""
    standby.execute("ALTER SYSTEM SET primary_conninfo = ''")
    standby.execute("SELECT pg_reload_conf()")
    alone = "SELECT count(*) = 0 FROM pg_stat_wal_receiver"
    wait_until(lambda: standby.execute(alone)[0][0], 60, "the standby receives nothing")
