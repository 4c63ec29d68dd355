"""One family per data directory, and no member of it left behind."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from catalog.errcodes import IoError, ObjectInUse, ObjectNotInPrerequisiteState
from config.limits import SOCKET_PATH_BYTES
from subscriber.launcher.data_directory_lock import DataDirectoryLock
from tests.processes import command_line
from tests.subscriber.launcher_family import Family
from tests.waiting import wait_until
from workers.process.launcher_client import query_launcher
from workers.process.launcher_socket import LockInfo, own_pid_space, read_lock_file


def test_the_lock_is_exclusive_and_says_who_holds_it(tmp_path: Path) -> None:
    held = DataDirectoryLock.acquire(tmp_path, wait=0)
    held.describe(LockInfo(4711, tmp_path / "s", 1, own_pid_space()))
    waited: list[str] = []
    with pytest.raises(ObjectInUse, match="is used by another pgsub") as caught:
        DataDirectoryLock.acquire(tmp_path, wait=0.2, on_wait=waited.append)
    assert caught.value.code == "55006"
    assert "4711" in str(caught.value.detail)
    assert len(waited) == 1
    held.describe(None)
    held.release()
    DataDirectoryLock.acquire(tmp_path, wait=0).release()


def test_a_child_that_inherited_the_lock_keeps_it(tmp_path: Path) -> None:
    held = DataDirectoryLock.acquire(tmp_path, wait=0)
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        pass_fds=[held.fd],
    ) as child:
        held.release()
        with pytest.raises(ObjectInUse) as caught:
            DataDirectoryLock.acquire(tmp_path, wait=0)
        assert f"PID {child.pid}, left by a launcher that has ended" in str(caught.value.detail)
        assert child.stdin is not None
        child.stdin.close()
        child.wait()
    DataDirectoryLock.acquire(tmp_path, wait=0).release()


def test_a_file_system_whose_locks_do_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda _fd, _how: None)
    with pytest.raises(ObjectNotInPrerequisiteState, match="has no file locks"):
        DataDirectoryLock.acquire(tmp_path, wait=0)


def test_a_file_system_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_fd: int, _how: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ObjectNotInPrerequisiteState, match="has no file locks"):
        DataDirectoryLock.acquire(tmp_path, wait=0)


def test_a_data_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(IoError, match="could not open lock file"):
        DataDirectoryLock.acquire(tmp_path / "file" / "d", wait=0)


def test_a_second_launcher_is_told_whom_it_waits_for(family: Family) -> None:
    first = family.start()
    second = family.begin(lock_wait=0.5)
    _, said = second.communicate(timeout=20)
    assert second.returncode == 1
    assert "ERROR:  55006" in said
    assert f"The lock is held by the launcher with PID {first.pid}." in said
    assert family.status().pid == first.pid


CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Process ids of its own, from 1 on, and no sight of anybody else's."""


def in_containers() -> bool:
    try:
        return (
            subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode == 0
        )
    except FileNotFoundError:
        return False


containers = pytest.mark.skipif(not in_containers(), reason="nobody here may make a PID namespace")


@containers
def test_the_launcher_of_another_container_is_kept_out(family: Family) -> None:
    """Two containers on one volume: neither sees the other's processes."""
    first = family.start()
    _, said = family.begin(inside=CONTAINER, lock_wait=0.5).communicate(timeout=20)
    assert "ERROR:  55006" in said
    assert "The lock is held by a launcher of another host or container, or a process" in said
    assert "PID" not in said
    assert family.status().pid == first.pid


@containers
def test_the_first_process_of_a_container_is_not_taken_for_ours(family: Family) -> None:
    """Its launcher has PID 1 there, which is somebody else here."""
    family.begin(inside=CONTAINER)
    wait_until(lambda: query_launcher(family.data_dir) is not None, 30, family.log)
    assert family.status().pid == 1
    for inside in ((), CONTAINER):
        _, said = family.begin(inside=inside, lock_wait=0.5).communicate(timeout=20)
        assert "ERROR:  55006" in said
        assert "a launcher of another host or container" in said
        assert "the launcher with PID" not in said
        assert "PID 1," not in said


def test_a_second_launcher_takes_over_when_the_first_ends(family: Family) -> None:
    (subid,) = family.subscribe("steady")
    first = family.start()
    family.await_worker(subid)
    second = family.begin(lock_wait=30)
    wait_until(lambda: "action=lock_wait" in family.log(), 20, family.log)
    first.terminate()
    assert first.wait(20) == 0
    wait_until(lambda: _is_up(family, second.pid), 20, family.log)
    family.await_worker(subid)


def _is_up(family: Family, pid: int) -> bool:
    info = read_lock_file(family.data_dir)
    return info is not None and info.pid == pid and info.socket.exists()


@pytest.mark.crash
def test_s_p_7_a_killed_launcher_takes_its_children_with_it(family: Family) -> None:
    first, _, _ = family.subscribe("crowded", "stubborn", "silent")
    launcher = family.start(settings={"max_logical_replication_workers": 8})
    family.await_worker(first, 1)
    children = family.descendants()
    assert len(children) == 6  # two sync, three apply, the lake server
    launcher.kill()
    launcher.wait()
    _, alive = psutil.wait_procs([child for child in children if not _is_silent(child)], 10)
    assert not alive


def _is_silent(process: psutil.Process) -> bool:
    """The worker that never connects stands for one killed before it could arm itself."""
    line = command_line(process)
    return "--slot" in line and line[-3] == "2"


@pytest.mark.crash
def test_s_p_7_a_frozen_child_of_a_killed_launcher_keeps_the_next_one_out(family: Family) -> None:
    (subid,) = family.subscribe("silent")
    launcher = family.start()
    (row,) = family.status().workers
    launcher.kill()
    launcher.wait()
    blocked = family.begin(lock_wait=0.5)
    _, said = blocked.communicate(timeout=20)
    assert blocked.returncode == 1
    assert f"PID {row.pid}, left by a launcher that has ended" in said
    family.kill(row.pid, signal.SIGKILL)
    family.store.delete_subscription(subid)
    family.start()


@pytest.mark.crash
def test_generations_go_on_after_a_crash(family: Family) -> None:
    (subid,) = family.subscribe("steady")
    first = family.start()
    assert family.await_worker(subid).generation == 1
    first.kill()
    first.wait()
    family.start()
    assert family.await_worker(subid).generation == 2


def test_a_deep_data_directory_works(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 80) / ("e" * 80)
    with Family(deep) as family:
        (subid,) = family.subscribe("steady")
        launcher = family.start()
        family.await_worker(subid)
        info = read_lock_file(deep)
        assert info is not None
        assert len(os.fsencode(info.socket)) <= SOCKET_PATH_BYTES
        folder = info.socket.parent
        assert folder.stat().st_mode & 0o777 == 0o700
        launcher.kill()
        launcher.wait()
        second = family.start()
        assert not folder.exists()  # the next launcher tidies up
        family.await_worker(subid)
        second.terminate()
        assert second.wait(20) == 0
        assert read_lock_file(deep) is None
    shutil.rmtree(tmp_path / ("d" * 80))
