"""Metrics and health of a real family: figures against the views, and a Prometheus server."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.docs.pages import DOCS, blocks
from tests.fix_publisher import Database
from tests.harness import SETTINGS, Pgsub
from tests.ports import free_port
from tests.prometheus import program, promtool
from tests.waiting import wait_until
from workers.parent_death import dying_with_parent

SECRET = "planted-r0w-value"
PASSWORD = "planted-passw0rd"


@dataclass
class Monitored:
    """A running family with a subscription ``mon``, and the listener's port."""

    pgsub: Pgsub
    database: Database
    port: int

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def figures(self) -> dict[str, float]:
        """The figures of the subscription, with the further labels' values behind the name."""
        status, text = self.get("/metrics")
        assert status == 200, text
        return {
            " ".join(
                [each.name, *(v for k, v in each.labels.items() if k != "subname")]
            ): each.value
            for family in text_string_to_metric_families(text)
            for each in family.samples
            if each.labels.get("subname", "mon") == "mon"
        }

    def catch_up(self) -> None:
        self.pgsub.wait("mon")


@pytest.fixture
def monitored(own_pgsub: Pgsub, database: Database) -> Monitored:
    port = free_port()
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, v text, big text)",
        "ALTER TABLE t ALTER big SET STORAGE EXTERNAL",
        "CREATE PUBLICATION p FOR TABLE t",
        f"INSERT INTO t VALUES (1, '{SECRET}', repeat('x', 10000))",
    )
    connection = f"{database.dsn} password={PASSWORD}"
    entry = {"connection": connection, "publication": ["p"]}
    settings = {**SETTINGS, "metrics_listen": port, "metrics_per_table": "on", "log_format": "json"}
    own_pgsub.up({"subscriptions": {"mon": entry}, "settings": settings})
    made = Monitored(own_pgsub, database, port)
    made.catch_up()
    return made


@pytest.mark.postgres
@pytest.mark.spark
def test_figures_health_and_a_prometheus_server(monitored: Monitored, tmp_path: Path) -> None:
    pgsub, database = monitored.pgsub, monitored.database
    before = monitored.figures()
    database.run(
        f"INSERT INTO t SELECT n, '{SECRET}' FROM generate_series(2, 11) n",
        "UPDATE t SET v = v || 'x' WHERE id <= 4",
        "DELETE FROM t WHERE id = 11",
    )
    monitored.catch_up()
    wait_until(lambda: _transactions(monitored) == before[_TRANSACTIONS] + 3, 30)
    found = monitored.figures()
    assert {
        op: found[f"pgsub_rows_applied_total {op}"] for op in ("insert", "update", "delete")
    } == {
        "insert": 10,
        "update": 4,
        "delete": 1,
    }
    assert found["pgsub_unchanged_toast_values_total"] == 1
    assert found["pgsub_received_bytes_total"] > 0
    for name in ("batch", "lake_commit", "publish"):
        assert found[f"pgsub_{name}_duration_seconds_count"] >= 1
    _compare_with_views(monitored, found)
    _compare_with_iceberg(monitored, found)
    _counters_survive_a_killed_worker(monitored)
    _lag_is_that_of_what_is_not_visible(monitored)
    _look_for_secrets(monitored)
    _the_launcher_is_small(monitored)
    assert promtool("check", "metrics", stdin=monitored.get("/metrics")[1].encode()) == ""
    _scrape(monitored, tmp_path)
    _health(monitored)
    assert PASSWORD not in pgsub.log_tail(10_000)


_TRANSACTIONS = "pgsub_transactions_applied_total"


def _transactions(monitored: Monitored) -> float:
    return monitored.figures()[_TRANSACTIONS]


def _compare_with_iceberg(monitored: Monitored, found: dict[str, float]) -> None:
    """The files are those of the table's metadata, which the worker never asked for."""
    table = monitored.pgsub.iceberg_table("public", "t")
    assert found["pgsub_lake_snapshots"] == len(table.metadata.snapshots)
    file = Path(table.metadata_location.removeprefix("file:"))
    assert 0 < found["pgsub_lake_metadata_bytes"] < file.stat().st_size
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    told = {name: float(snapshot.summary[f"total-{name}"] or 0) for name in _TOTALS}
    assert told["position-deletes"] > 0
    assert [found[name] for name in _TOTALS.values()] == list(told.values())
    assert found["pgsub_lake_tables"] == 1


_TOTALS = {
    "data-files": "pgsub_lake_data_files",
    "delete-files": "pgsub_lake_delete_files",
    "position-deletes": "pgsub_lake_deleted_rows",
}


def _compare_with_views(monitored: Monitored, found: dict[str, float]) -> None:
    """While nothing happens, the views stay: but for keepalives."""
    pgsub, database = monitored.pgsub, monitored.database
    (stat,) = pgsub.status("pg_stat_subscription")
    seen = _bytes(database, stat["received_lsn"])
    assert found["pgsub_subscription_received_lsn_bytes"] <= seen
    assert found["pgsub_subscription_lag_bytes"] == 0
    assert found["pgsub_subscription_lag_seconds"] == 0
    assert found["pgsub_tables r"] == 1
    assert found["pgsub_relation_state public.t r"] == 1
    (slot,) = database.execute(
        "SELECT active, confirmed_flush_lsn - '0/0', wal_status FROM pg_replication_slots"
        " WHERE slot_name = 'mon'"
    )
    assert slot[0]
    assert found["pgsub_slot_active"] == found["pgsub_slot_exists"] == 1
    assert found["pgsub_subscription_flushed_lsn_bytes"] <= slot[1]
    assert found["pgsub_slot_lag_bytes"] >= 0
    assert found[f"pgsub_slot_wal_status {slot[2]}"] == 1
    (stats,) = pgsub.status("pg_stat_subscription_stats")
    assert found["pgsub_apply_errors_total"] == stats["apply_error_count"]


def _bytes(database: Database, lsn: str) -> float:
    return float(database.value("SELECT %s::pg_lsn - '0/0'", (lsn,)))


def _counters_survive_a_killed_worker(monitored: Monitored) -> None:
    before = monitored.figures()
    worker = monitored.pgsub.worker("mon")
    assert worker is not None
    os.kill(worker["pid"], signal.SIGKILL)
    monitored.database.run(f"INSERT INTO t VALUES (100, '{SECRET}')")
    wait_until(lambda: _transactions(monitored) == before[_TRANSACTIONS] + 1, 60)
    found = monitored.figures()
    assert found["pgsub_rows_applied_total insert"] == 11
    assert found["pgsub_worker_restarts_total apply"] == 1
    assert found["pgsub_received_bytes_total"] > before["pgsub_received_bytes_total"]


def _lag_is_that_of_what_is_not_visible(monitored: Monitored) -> None:
    """A commit waits for the lake; the lag grows in bytes and by the second."""
    lake = monitored.pgsub.lake_server()
    lake.suspend()
    try:
        monitored.database.run(f"INSERT INTO t VALUES (101, '{SECRET}', repeat('y', 100000))")
        wait_until(lambda: monitored.figures()[f"{_LAG}_bytes"] > 1000, 30, monitored.figures)
        began = monitored.figures()[f"{_LAG}_seconds"]
        wait_until(lambda: monitored.figures()[f"{_LAG}_seconds"] > began + 1, 30)
        assert monitored.figures()["pgsub_slot_lag_bytes"] > 1000
    finally:
        lake.resume()
    monitored.catch_up()
    wait_until(lambda: monitored.figures()[f"{_LAG}_bytes"] == 0, 30, monitored.figures)
    assert monitored.figures()[f"{_LAG}_seconds"] == 0


_LAG = "pgsub_subscription_lag"


def _the_launcher_is_small(monitored: Monitored) -> None:
    """CREATE needs Arrow and Spark's client, 100 MB of them: in another process."""
    mapped = Path(f"/proc/{monitored.pgsub.launcher.pid}/maps").read_text()
    assert "python" in mapped
    assert not [name for name in ("pyarrow", "numba", "pandas", "grpc") if name in mapped]


def _look_for_secrets(monitored: Monitored) -> None:
    for path in ("/metrics", "/readyz?verbose", "/livez?verbose", "/"):
        text = monitored.get(path)[1]
        assert not [secret for secret in (SECRET, PASSWORD, "token=") if secret in text]
    log = (monitored.pgsub.data_dir / "log" / "pgsub.log").read_text()
    entries = [json.loads(line) for line in log.splitlines()]
    assert {"launcher", "apply"} <= {each["application_name"].split()[0] for each in entries}
    assert SECRET not in log
    assert PASSWORD not in log


def _scrape(monitored: Monitored, folder: Path) -> None:
    """Debian's server scrapes with the page's configuration, and evaluates the page's rules."""
    port = free_port()
    _, scrape = blocks(DOCS / "monitoring" / "README.md", "yaml")
    shutil.copy(DOCS / "monitoring" / "pgsub.rules.yml", folder)
    often = "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
    (folder / "prometheus.yml").write_text(often + scrape.replace("9187", str(monitored.port)))
    server = subprocess.Popen(
        dying_with_parent(
            [
                str(program("prometheus")),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ]
        ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:

        def told(page: str) -> dict[str, Any]:
            with (
                suppress(OSError),
                urlopen(f"http://127.0.0.1:{port}/api/v1/{page}", timeout=10) as answer,
            ):
                return dict(json.load(answer)["data"])
            return {}

        def asked(query: str) -> list[Any]:
            return list(told(f"query?query={quote(query)}").get("result", []))

        def rules() -> dict[str, str]:
            groups = told("rules").get("groups", [])
            return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

        (up,) = wait_until(lambda: asked('up{job="pgsub"} == 1'), 60)
        assert up["value"][1] == "1"
        (rows,) = wait_until(lambda: asked('pgsub_rows_applied_total{op="insert"}'), 60)
        assert (rows["metric"]["subname"], rows["value"][1]) == ("mon", "12")
        assert asked("histogram_quantile(0.9, pgsub_batch_duration_seconds_bucket)")
        wait_until(lambda: set(rules().values()) == {"ok"}, 30, rules)
        assert len(rules()) == 11
    finally:
        server.kill()
        server.wait()


def _health(monitored: Monitored) -> None:
    pgsub = monitored.pgsub
    assert monitored.get("/livez") == (200, "ok\n")
    status, text = monitored.get("/readyz?verbose")
    ran = pgsub.command("health")
    assert (status, ran.stdout) == (200, text)
    shown, _ = blocks(DOCS / "monitoring" / "README.md", "console")[0].split("$ curl")[1:]
    shape = [re.sub(r"\d+", "N", each.replace("sales", "mon")) for each in shown.splitlines()[1:]]
    assert [re.sub(r"\d+", "N", line) for line in text.splitlines()] == shape
    pgsub.command("disable", "mon")
    assert 'subscription "mon"' not in pgsub.command("health").stdout
