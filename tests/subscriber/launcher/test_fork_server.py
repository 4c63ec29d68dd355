"""Workers as the product starts them: forked from a server that has everything loaded.

They are real, and wait for a lake that never comes up.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.errcodes import DuplicateTable, ReplicationError
from subscriber.launcher.fork_server import _ENVIRONMENT, _environment, call_forked
from tests.bench.meters import anonymous_mb
from tests.processes import told_alone
from tests.subscriber.launcher_family import Family
from tests.workers.process.spark_peer import port_of, started, task_at
from workers.process.launcher_client import query_launcher
from workers.process.launcher_socket import LOCK_FILE

SETTINGS = {"wal_retrieve_retry_interval": "100ms", "wal_receiver_timeout": "100ms"}


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    with Family(tmp_path / "d", real_workers=True, settings=SETTINGS) as made:
        yield made


def test_the_launcher_answers_while_the_fork_server_loads(family: Family) -> None:
    (subid,) = family.subscribe("real")
    launcher = family.start(phase="starting")
    for _ in range(5):
        assert query_launcher(family.data_dir, timeout=1.0) is not None
    row = family.await_worker(subid)
    assert psutil.Process(row.pid).name() == "pgsub apply"
    assert f"pid={row.pid} logical replication apply worker has started" in family.log()
    assert row.pid is not None
    assert os.getsid(row.pid) == row.pid
    family.store.update_subscription(subid, subenabled=False)
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(40) == 0


def is_alive(pid: int) -> bool:
    """Does the process run? An orphan that nobody has asked for its status yet does not."""
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


@contextmanager
def spark_s_python(family: Family) -> Iterator[tuple[psutil.Process, psutil.Process]]:
    """A daemon that was started as Spark does it, and a task of the daemon."""
    (family.data_dir / "lake" / "tmp").mkdir(parents=True, exist_ok=True)
    with started(family.data_dir) as program, task_at(port_of(program)) as pid:
        task = psutil.Process(pid)
        daemon = task.parent()
        assert daemon is not None
        yield daemon, task


def open_files(process: psutil.Process) -> list[str]:
    return [os.readlink(fd) for fd in Path("/proc", str(process.pid), "fd").iterdir()]


@pytest.mark.timeout(60)
def test_spark_s_python_is_forked_and_ends_with_the_fork_server(family: Family) -> None:
    launcher = family.start(phase="starting")
    with spark_s_python(family) as (daemon, task):
        assert daemon.name() == "pgsub python"
        assert daemon.parent() == family.fork_server()
        lock = str(family.data_dir / LOCK_FILE)
        assert lock in open_files(psutil.Process(launcher.pid))
        assert lock not in open_files(daemon) + open_files(task)
        family.fork_server().kill()
        daemon.wait(20)
        task.wait(20)


@pytest.mark.timeout(60)
def test_a_python_that_stands_still_does_not_delay_the_end(family: Family) -> None:
    launcher = family.start(phase="starting")
    with spark_s_python(family) as (daemon, task):
        daemon.suspend()
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(20) == 0
        task.wait(20)


def _say(folder: str, word: str) -> None:
    print(word, os.getppid(), file=sys.stderr)
    Path(folder, "pid").write_text(str(os.getpid()))


def _refuse(detail: str) -> None:
    error = DuplicateTable("there already", detail=detail, hint="Map it elsewhere.")
    error.context.append("in the other process")
    raise error


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _break() -> None:
    raise KeyError("planted-s3cret")


def grown_by_freed_arrays() -> float:
    """MB that the process keeps of 300 MB of arrays, with 7 MB of small objects between them."""
    between: list[bytes] = []
    before = anonymous_mb(os.getpid())
    for _ in range(3):
        arrays = []
        for _ in range(25):
            arrays.append(np.ones(500_000))
            between.append(bytes(100_000))
        del arrays
    return anonymous_mb(os.getpid()) - before


def test_a_large_array_that_was_freed_is_the_system_s_again() -> None:
    """Also if small objects that stay lie between: in the environment of the fork server."""
    assert told_alone("grown_by_freed_arrays", __name__, _ENVIRONMENT) < 40


def grown_by_threads_of_arrow() -> float:
    """MB that the process takes for 32 threads at a time, each with a small Parquet file."""
    rows = pa.table({"a": range(5), "b": ["x"] * 5})
    written = threading.Barrier(33)
    read = threading.Barrier(33)

    def write() -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink)
        written.wait()
        read.wait()

    pq.write_table(rows, pa.BufferOutputStream())
    before = anonymous_mb(os.getpid())
    threads = [threading.Thread(target=write) for _ in range(32)]
    for each in threads:
        each.start()
    written.wait()
    grown = anonymous_mb(os.getpid()) - before
    read.wait()
    for each in threads:
        each.join()
    return grown


def test_many_threads_of_arrow_take_little_memory() -> None:
    """With a heap for each thread they would take 50 MB."""
    assert told_alone("grown_by_threads_of_arrow", __name__, _ENVIRONMENT) < 30


@pytest.mark.parametrize(("chosen", "used"), [("", "jemalloc"), ("system", "system")])
def test_a_user_may_choose_arrow_s_memory(
    monkeypatch: pytest.MonkeyPatch, chosen: str, used: str
) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", chosen)
    assert _environment() == {**_ENVIRONMENT, "ARROW_DEFAULT_MEMORY_POOL": used}


def test_a_call_in_a_forked_process(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its words, its error, and an end without a word come back; the process is gone then."""
    call_forked(_say, str(tmp_path), "heard", pass_fds=[])
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
    said = capfd.readouterr().err
    assert said.startswith("heard ")
    assert f"heard {os.getpid()}" not in said
    with pytest.raises(ReplicationError, match="there already") as caught:
        call_forked(_refuse, "public.a", pass_fds=[0])
    error = caught.value
    assert (error.code, error.detail, error.hint) == ("42P07", "public.a", "Map it elsewhere.")
    assert error.context == ["in the other process"]
    with pytest.raises(ReplicationError, match="without an answer"):
        call_forked(_die, pass_fds=[])
    with pytest.raises(ReplicationError) as broken:
        call_forked(_break, pass_fds=[])
    assert "planted" not in broken.value.report()


def test_a_forked_process_does_not_import_the_launcher_s_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = ModuleType("__main__")
    script.__file__ = str(tmp_path / "script.py")
    (tmp_path / "script.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\n")
    monkeypatch.setitem(sys.modules, "__main__", script)
    call_forked(_say, str(tmp_path), "heard", pass_fds=[])
    assert (tmp_path / "pid").exists()
    assert not (tmp_path / "imported").exists()
    assert sys.modules["__main__"] is script


@pytest.mark.crash
def test_a_killed_launcher_takes_the_forked_workers_with_it(family: Family) -> None:
    (subid,) = family.subscribe("real")
    launcher = family.start(phase="starting")
    family.kill(family.await_worker(subid).pid, signal.SIGSTOP)  # it cannot see the socket's end
    children = family.descendants()
    launcher.kill()
    launcher.wait()
    _, alive = psutil.wait_procs(children, 10)
    assert not alive


@pytest.mark.crash
def test_killed_workers_and_a_killed_fork_server_are_replaced(family: Family) -> None:
    (subid,) = family.subscribe("real")
    family.start(phase="starting")
    first = family.await_worker(subid)
    family.kill(first.pid)
    second = family.await_worker(subid, after=first.generation)
    assert "was terminated by signal 9" in family.log()
    server = family.fork_server()
    server.terminate()  # a service manager's SIGTERM to everybody
    server.kill()
    third = family.await_worker(subid, after=second.generation)
    assert second.pid is not None
    assert not is_alive(second.pid)
    assert third.pid != second.pid


def test_modules_of_the_current_directory_are_not_imported(tmp_path: Path) -> None:
    hostile = tmp_path / "cwd"
    hostile.mkdir()
    for name in ("config", "workers", "catalog", "subscriber"):
        (hostile / f"{name}.py").write_text("raise SystemExit('a stranger was imported')\n")
    with Family(tmp_path / "d", real_workers=True) as family:
        (subid,) = family.subscribe("real")
        family.start(phase="starting", cwd=str(hostile))
        family.await_worker(subid)


def test_the_fork_server_has_no_threads_but_the_allocator_s(family: Family) -> None:
    (subid,) = family.subscribe("real")
    family.start(phase="starting")
    family.await_worker(subid)
    server = family.fork_server()
    names = {
        Path(f"/proc/{server.pid}/task/{thread.id}/comm").read_text().strip()
        for thread in server.threads()
        if thread.id != server.pid
    }
    assert names <= {"jemalloc_bg_thd"}
