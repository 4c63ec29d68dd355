"""How a worker process ends that never got to its work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from catalog.errcodes import (
    AdminShutdown,
    ConnectionFailure,
    LakeBroken,
    NumericValueOutOfRange,
    ObjectInUse,
    ReplicationError,
    ReplicationGap,
    RequiredProcessGone,
)
from catalog.pg_stat_subscription_stats import ConflictType, SubscriptionStats
from catalog.pg_subscription import SubCreate, Subscription
from catalog.store_sqlite import CatalogStore
from workers import main as worker
from workers.changes.key_conflict import KeyConflict
from workers.lake.refusals import changed_meanwhile
from workers.lake.table import LakeIdent
from workers.process.launcher_socket import LOCK_FILE
from workers.process.worker_exit import EXIT_DONE, EXIT_ERROR, EXIT_GAP, EXIT_REPEATED, WorkerExit
from workers.process.worker_process import WorkerProcess

ARGV = ["apply", "--subid", "7", "--relid", "0", "--slot", "2", "--generation", "3"]


pytestmark = pytest.mark.usefixtures("quiet_afterwards")


class Link:
    """A launcher's socket that fails at one of the two first calls."""

    def __init__(self, at: str, error: Exception) -> None:
        self.at, self.error = at, error
        self.calls: list[str] = []

    def connect(self, *_: object) -> Link:
        self._reach("connect")
        return self

    def attach(self) -> None:
        self._reach("attach")

    def close(self) -> None: ...

    def lake_broken(self) -> None:
        self._reach("lake_broken")

    def _reach(self, call: str) -> None:
        self.calls.append(call)
        if call == self.at:
            raise self.error


def log_of(data_dir: Path, monkeypatch: pytest.MonkeyPatch, link: Link) -> str:
    monkeypatch.setattr(worker, "LauncherLink", link)
    assert worker.main([*ARGV, "--data-dir", str(data_dir)]) == EXIT_ERROR
    text = (data_dir / "log" / "pgsub.log").read_text()
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize(
    ("at", "error", "said"),
    [
        ("connect", ConnectionFailure("the launcher is gone"), "08006 the launcher is gone"),
        ("attach", ObjectInUse("worker slot 2 is not waiting"), "55006 worker slot 2"),
        ("attach", KeyError("worker"), "XX000 unexpected KeyError at test_main.py"),
    ],
)
def test_an_error_before_the_work_begins_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, error: Exception, said: str
) -> None:
    text = log_of(tmp_path, monkeypatch, Link(at, error))
    assert f"ERROR:  action=error subid=7 relid=0 sqlstate={said}" in text


def test_a_catalog_that_cannot_be_opened_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "catalog.db").write_text("this is no database, whatever its name says")
    text = log_of(tmp_path, monkeypatch, Link("nowhere", ReplicationError("")))
    assert "sqlstate=58030 could not use the catalog" in text


def test_settings_of_another_version_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CatalogStore.open(tmp_path)
    store.put_settings({"settings": {"nosuch": "secret value"}})
    store.close()
    text = log_of(tmp_path, monkeypatch, Link("nowhere", ReplicationError("")))
    assert "XX000 unexpected ValidationError" in text
    assert "secret" not in text


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (ReplicationGap("the slot is gone", sqlstate="42704"), EXIT_GAP, [1, 0]),
        (ConnectionFailure("no route"), EXIT_ERROR, [1, 1]),
    ],
    ids=["gap", "connection"],
)
def test_a_gap_is_told_once_and_ends_with_a_status_of_its_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: ReplicationError,
    status: int,
    told: list[int],
) -> None:
    store = CatalogStore.open(tmp_path)
    row = Subscription("mysub", "host=db", ("pub",), subuuid="u", subcreate=SubCreate.READY)
    subid = store.insert_subscription(row).oid
    (tmp_path / LOCK_FILE).write_text('{"pid": 1, "socket": "s", "start_time": 1}')
    monkeypatch.setattr(worker, "LauncherLink", Link("nowhere", error))
    monkeypatch.setattr("workers.apply.worker.apply_worker_main", _raising(error))
    argv = [*ARGV[:2], str(subid), *ARGV[3:], "--data-dir", str(tmp_path)]
    log, counts = tmp_path / "log" / "pgsub.log", []
    for _ in told:
        before = log.read_text().count("ERROR:") if log.exists() else 0
        assert worker.main(argv) == status
        counts.append(log.read_text().count("ERROR:") - before)
    assert counts == told
    assert [each.message for each in store.last_errors()] == [error.primary]
    store.close()


def _raising(error: Exception, *, applying: bool = False) -> Callable[[WorkerProcess], None]:
    def run(process: WorkerProcess) -> None:
        process.applying = applying
        raise error

    return run


EXISTS = KeyConflict(ConflictType.INSERT_EXISTS, LakeIdent("public", "a"), ("id",))
DISABLED = 'subscription "mysub" has been disabled because of an error'


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ended]:
    ended = Ended(tmp_path, monkeypatch)
    yield ended
    ended.store.close()


class Ended:
    """Workers of a subscription with ``disable_on_error`` that end with an error."""

    def __init__(self, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data_dir = data_dir
        self.store = CatalogStore.open(data_dir)
        self._monkeypatch = monkeypatch
        row = Subscription(
            "mysub",
            "host=db",
            ("pub",),
            subuuid="u",
            subcreate=SubCreate.READY,
            subdisableonerr=True,
        )
        self.subid = self.store.insert_subscription(row).oid

    def worker(self, error: Exception, *, applying: bool = True, relid: int = 0) -> int:
        """Its exit status."""
        self.link = Link("nowhere", error)
        self._monkeypatch.setattr(worker, "LauncherLink", self.link)
        main = "sync.worker.table_sync_worker_main" if relid else "apply.worker.apply_worker_main"
        self._monkeypatch.setattr(f"workers.{main}", _raising(error, applying=applying))
        numbers = ["--subid", str(self.subid), "--relid", str(relid)]
        argv = [ARGV[0], *numbers, *ARGV[5:], "--data-dir", str(self.data_dir)]
        return worker.main(argv)

    @property
    def enabled(self) -> bool:
        sub = self.store.subscription(self.subid)
        assert sub is not None
        return sub.subenabled

    @property
    def stats(self) -> SubscriptionStats:
        return self.store.subscription_stats(self.subid)

    @property
    def log(self) -> str:
        return (self.data_dir / "log" / "pgsub.log").read_text()


@pytest.mark.parametrize(
    "error",
    [
        NumericValueOutOfRange("no value of its column"),
        ConnectionFailure("lost the connection to the publisher"),
        ReplicationError("permission denied", sqlstate="42501"),
        KeyError("a bug"),
    ],
    ids=["data", "connection", "permission", "bug"],
)
def test_an_error_while_applying_disables(run: Ended, error: Exception) -> None:
    assert run.worker(error) == EXIT_DONE
    assert not run.enabled
    assert f"LOG:  action=disable_on_error subid={run.subid} {DISABLED}" in run.log
    assert run.log.index("action=error") < run.log.index("action=disable_on_error")
    assert run.stats == SubscriptionStats(run.subid, apply_error_count=1)


def test_an_error_of_a_sync_worker_disables(run: Ended) -> None:
    error = ConnectionFailure("could not connect to the publisher")
    assert run.worker(error, relid=5) == EXIT_DONE
    assert not run.enabled
    assert run.stats == SubscriptionStats(run.subid, sync_error_count=1)


@pytest.mark.parametrize(
    ("error", "applying"),
    [
        (ConnectionFailure("could not connect to the publisher"), False),
        (ReplicationGap("the slot is gone", sqlstate="42704"), False),
        (RequiredProcessGone("lost the lake server while writing"), True),
        (changed_meanwhile(LakeIdent("s", "t")), True),
        (AdminShutdown("terminating"), True),
        (WorkerExit("its table left"), True),
    ],
    ids=["connecting", "a gap", "the lake server", "another writer", "told to stop", "on purpose"],
)
def test_what_is_no_error_of_applying_neither_disables_nor_counts(
    run: Ended, error: Exception, applying: bool
) -> None:
    run.worker(error, applying=applying)
    assert run.enabled
    assert run.stats == SubscriptionStats(run.subid)
    assert DISABLED not in run.log


@pytest.mark.parametrize("relid", [0, 5])
def test_a_lake_server_that_cannot_go_on_is_told_of(run: Ended, relid: int) -> None:
    error = LakeBroken("the lake server cannot go on", hint="The launcher starts it again.")
    assert run.worker(error, relid=relid) == EXIT_ERROR
    assert run.link.calls[-1] == "lake_broken"
    assert run.enabled
    run.worker(RequiredProcessGone("lost the lake server"), relid=relid)
    assert run.link.calls[-1] == "attach"


def test_errors_are_counted_and_tried_again_without_the_option(run: Ended) -> None:
    run.store.update_subscription(run.subid, subdisableonerr=False)
    assert run.worker(EXISTS) == run.worker(EXISTS) == EXIT_ERROR
    assert run.enabled
    assert run.stats == SubscriptionStats(run.subid, apply_error_count=2, confl_insert_exists=2)


def test_the_error_of_the_worker_before_ends_with_a_status_of_its_own(run: Ended) -> None:
    """The detail may differ: a position, or how many rows there are by now."""
    run.store.update_subscription(run.subid, subdisableonerr=False)
    (run.data_dir / LOCK_FILE).write_text('{"pid": 1, "socket": "s", "start_time": 1}')

    def missing(detail: str) -> ReplicationError:
        return ReplicationError("a column is missing", sqlstate="55000", detail=detail)

    assert run.worker(missing("one")) == EXIT_ERROR
    assert run.worker(missing("two")) == run.worker(missing("three")) == EXIT_REPEATED
    assert run.worker(ConnectionFailure("no route")) == EXIT_ERROR
    assert run.worker(ConnectionFailure("no route")) == EXIT_ERROR
    assert run.worker(missing("four")) == EXIT_ERROR
