"""The launcher's promises, kept with real processes: workers that apply nothing, a lake of air."""

from __future__ import annotations

import signal
from contextlib import suppress
from urllib.request import urlopen

import psutil

from catalog.pg_subscription import SubCreate
from tests.ports import free_port
from tests.subscriber.launcher_family import SETTINGS, Family
from tests.waiting import wait_until
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


def test_the_listener_of_metrics_answers_and_ends_with_the_launcher(family: Family) -> None:
    port = free_port()
    launcher = family.start(settings={**SETTINGS, "metrics_listen": port})

    def alive() -> bool:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/livez") as answer:
            return bool(answer.read() == b"ok\n")
        return False

    wait_until(alive, 20, family.log)
    launcher.terminate()
    launcher.communicate(timeout=20)
    assert launcher.returncode == 0
    assert not alive()
