"""The pages of the listener, on a launcher with workers that do nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final
from urllib.request import urlopen

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from config.guc import Settings
from subscriber.status.pages import Pages
from tests.bench.meters import anonymous_mb, cpu_seconds
from tests.ports import free_port
from tests.subscriber.launcher_family import SETTINGS, Family, reported
from workers.publisher.slot_lag import SlotLag

MOST_SECONDS: Final = 0.2
"""Of a scrape with 1,000 tables."""
MOST_MB: Final = 30
"""What a listener may add to a launcher."""


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    with Family(tmp_path / "d") as made:
        yield made


def ask(sub: Subscription, _settings: Settings) -> SlotLag:
    assert sub.subslotname == "slot"
    return SlotLag(True, 7, "reserved", 100)


def samples(content: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(content.decode())
        for sample in family.samples
    }


def test_pages_of_a_running_launcher(family: Family) -> None:
    (subid,) = family.subscribe("works")
    launcher = family.start()
    row = reported(family, subid, "applying_commit_time", 7)
    assert row.pid is not None
    pages = Pages(family.data_dir, family.store, ask)
    metrics = pages.get("/metrics")
    assert (metrics.status, metrics.content_type.partition(";")[0]) == (200, "text/plain")
    found = samples(metrics.content)
    assert found["pgsub_transactions_applied_total", ("works",)] == 3
    assert found["pgsub_slot_lag_bytes", ("works",)] == 7
    assert found["pgsub_launcher_phase", ("running",)] == 1
    resident = psutil.Process(launcher.pid).memory_info().rss
    shown = found["pgsub_process_resident_memory_bytes", ("launcher", "")]
    assert shown == pytest.approx(resident, rel=0.3)
    assert ("pgsub_process_cpu_seconds_total", ("apply", "works")) in found
    openmetrics = pages.get("/metrics", "application/openmetrics-text; version=1.0.0")
    assert openmetrics.content.endswith(b"# EOF\n")
    assert (pages.get("/livez").status, pages.get("/livez").content) == (200, b"ok\n")
    assert b"[+]launcher answers" in pages.get("/livez?verbose").content
    ready = pages.get("/readyz?verbose")
    assert ready.status == 503  # the fake lake server listens nowhere
    assert b'[+]subscription "works" has an apply worker' in ready.content
    assert b"[-]lake server is silent" in ready.content
    assert (pages.get("/").status, pages.get("/x").status) == (200, 404)


def test_a_launcher_whose_loop_hangs_is_not_alive(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subscriber.status.health.HEALTH_ANSWER_SECONDS", 0.2)
    monkeypatch.setattr("subscriber.status.pages.HEALTH_ANSWER_SECONDS", 0.2)
    launcher = family.start()
    pages = Pages(family.data_dir, family.store, ask)
    os.kill(launcher.pid, signal.SIGSTOP)
    assert pages.get("/livez").status == 503
    assert pages.get("/metrics").status == 503
    os.kill(launcher.pid, signal.SIGCONT)
    assert pages.get("/livez").status == 200
    launcher.kill()
    launcher.wait()
    assert b"is not running" in pages.get("/livez").content


def test_a_listener_costs_little_memory(tmp_path: Path) -> None:
    """A launcher that is scraped again and again against one without a listener."""
    without = scraped(tmp_path / "without", tables=200, times=0)
    found = scraped(tmp_path / "with", tables=200, times=5)
    assert without.mb > 1
    assert found.mb - without.mb <= MOST_MB, (without, found)


@pytest.mark.long
@pytest.mark.parametrize("per_table", ["off", "on"])
def test_the_cost_of_1000_tables(
    tmp_path: Path, per_table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """``pytest -m long -s tests/subscriber/status/test_pages.py`` prints the figures."""
    without = scraped(tmp_path / "without", tables=1000, times=0)
    found = scraped(tmp_path / "with", tables=1000, times=20, per_table=per_table)
    with capsys.disabled():
        print(
            f"\nmetrics_per_table {per_table}: {found.seconds * 1000:.0f} ms a scrape,"
            f" {found.cpu_seconds * 1000:.0f} ms of processor time, {found.size:,} bytes;"
            f" launcher {found.mb:.1f} MB, without a listener {without.mb:.1f} MB"
        )
    assert found.seconds <= MOST_SECONDS
    assert found.mb - without.mb <= MOST_MB


@dataclass(frozen=True, slots=True)
class Scraped:
    """The median time of a scrape, the launcher's processor time for one, the answer's size in
    bytes, and the launcher's memory after the last."""

    seconds: float
    cpu_seconds: float
    size: int
    mb: float


def scraped(folder: Path, *, tables: int, times: int, per_table: str = "off") -> Scraped:
    """Scrape a launcher by HTTP; without ``times`` the launcher has no listener."""
    port = free_port()
    more = {"metrics_listen": port, "metrics_per_table": per_table} if times else {}
    with Family(folder, settings={**SETTINGS, **more}) as family:
        (subid,) = family.subscribe("works")
        # A publisher that refuses at once.
        family.store.update_subscription(subid, subconninfo="host=/nowhere")
        with family.store.transaction():
            for number in range(tables):
                names = ("public", f"table_number_{number}")
                rel = SubscriptionRel(subid, 0, SubRelState.READY, None, *names, *names)
                family.store.insert_rel(rel)
        launcher = family.start()
        reported(family, subid, "phase", None)
        process, took, text = psutil.Process(launcher.pid), [], b""
        before = cpu_seconds([process])
        for _ in range(times):
            began = time.monotonic()
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                text = answer.read()
            took.append(time.monotonic() - began)
            assert f'pgsub_tables{{state="r",subname="works"}} {tables}.0'.encode() in text
        used = (cpu_seconds([process]) - before) / max(times, 1)
        return Scraped(median(took or [0.0]), used, len(text), anonymous_mb(launcher.pid))
