"""The launcher's promises, kept with real processes: workers that apply nothing, a lake of air."""

from __future__ import annotations

import signal

import psutil

from catalog.pg_subscription import SubCreate
from tests.subscriber.launcher_family import Family
from workers.process.launcher_socket import read_lock_file


def test_ready_enabled_subscriptions_get_workers_and_sigterm_ends_all(family: Family) -> None:
    first, second, third = family.subscribe("steady-1", "steady-2", "steady-3")
    family.store.update_subscription(second, subenabled=False)
    family.store.update_subscription(third, subcreate=SubCreate.CREATING)
    launcher = family.start()
    family.await_worker(first)
    assert [row.subid for row in family.status().workers] == [first]
    descendants = family.descendants()
    assert len(descendants) == 2  # the worker and the lake server
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(20) == 0
    _, alive = psutil.wait_procs(descendants, timeout=5)
    assert not alive
    assert not (family.data_dir / ".s.pgsub").exists()
    assert read_lock_file(family.data_dir) is None


def test_worker_lines_reach_the_launcher_s_standard_error(family: Family) -> None:
    family.subscribe("steady")
    launcher = family.start()
    family.await_worker(16384)
    launcher.terminate()
    _, said = launcher.communicate(timeout=20)
    assert said == (family.data_dir / "log" / "pgsub.log").read_text()
