"""The configuration file, as the launcher applies it."""

from __future__ import annotations

import json
import signal
import subprocess

from tests.subscriber.launcher_family import SETTINGS, Family
from tests.waiting import wait_until


def test_a_file_that_cannot_be_applied_ends_the_family(family: Family) -> None:
    family.subscribe("steady")
    launcher = family.begin(bad_file=True)
    _, said = launcher.communicate(timeout=20)
    assert launcher.returncode == 1
    assert "sqlstate=55000 the file is wrong" in said
    assert "DETAIL:  Seen by apply_file." in said
    assert "Traceback" not in said


def test_the_file_is_applied_when_the_lake_is_up_and_at_sighup(family: Family) -> None:
    (subid,) = family.subscribe("steady")
    launcher = family.start()
    applied = family.data_dir / "applied"
    assert applied.read_text() == "sc://localhost:1\n"
    before = family.await_worker(subid)
    family.store.put_settings({"settings": {"max_logical_replication_workers": 9}})
    launcher.send_signal(signal.SIGHUP)
    wait_until(lambda: applied.read_text().count("\n") == 2, 10, family.log)
    wait_until(lambda: "cannot be changed without restarting" in family.log(), 10, family.log)
    assert family.worker(subid) == before


def test_what_a_running_lake_server_keeps_is_told_at_sighup(family: Family) -> None:
    """And the format of new tables is nothing of it."""
    launcher = family.start()
    fixed = "{} cannot be changed without restarting".format
    family.store.put_settings(
        {
            "lake": {"format_version": 3},
            "settings": {"max_logical_replication_workers": 9, "metrics_listen": 1},
        }
    )
    launcher.send_signal(signal.SIGHUP)
    known = fixed("metrics_listen")
    wait_until(lambda: known in family.log(), 10, family.log)
    family.store.put_settings({"lake": {"format_version": 3, "catalog": {"type": "rest"}}})
    launcher.send_signal(signal.SIGHUP)
    told = fixed("lake.catalog and spark")
    wait_until(lambda: told in family.log(), 10, family.log)
    assert family.log().count(told) == 1


def test_the_log_is_json_from_the_first_line_on_and_follows_sighup(family: Family) -> None:
    (subid,) = family.subscribe("steady")
    launcher = family.start(settings={**SETTINGS, "log_format": "json"})
    family.await_worker(subid)
    entries = [json.loads(line) for line in family.log().splitlines()]
    assert {"start", "lake_up", "worker_start"} <= {entry["action"] for entry in entries}
    family.store.put_settings({"settings": {**SETTINGS, "log_format": "text"}})
    launcher.send_signal(signal.SIGHUP)
    applied = family.data_dir / "applied"
    wait_until(lambda: applied.read_text().count("\n") == 2, 10, family.log)
    # The launcher takes over the settings a moment after the file was applied; each SIGHUP logs.
    wait_until(lambda: _logs_text(family, launcher), 10, family.log)


def _logs_text(family: Family, launcher: subprocess.Popen[str]) -> bool:
    launcher.send_signal(signal.SIGHUP)
    return "launcher LOG:  action=reload" in family.log()
