"""The pages of the listener, on a launcher with workers that do nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from config.guc import Settings
from subscriber.status.pages import Pages
from tests.bench.meters import anonymous_mb
from tests.ports import free_port
from tests.subscriber.launcher_family import SETTINGS, Family, reported
from workers.publisher.slot_lag import SlotLag


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
    row = reported(family, subid, "phase", None)
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
    port = free_port()
    sizes = []
    for name, settings in (("without", {}), ("with", {"metrics_listen": port})):
        with Family(tmp_path / name, settings={**SETTINGS, **settings}) as family:
            (subid,) = family.subscribe("works")
            with family.store.transaction():
                for number in range(200):
                    names = ("public", f"t{number}")
                    rel = SubscriptionRel(subid, 0, SubRelState.READY, None, *names, *names)
                    family.store.insert_rel(rel)
            launcher = family.start()
            reported(family, subid, "phase", None)
            for _ in range(5 if settings else 0):
                with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                    assert b"pgsub_tables{" in answer.read()
            sizes.append(anonymous_mb(launcher.pid))
    without, scraped = sizes
    assert without > 1
    assert scraped - without <= 30, sizes
