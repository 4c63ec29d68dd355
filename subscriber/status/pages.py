"""The pages of the metrics listener: ``/metrics``, ``/livez`` and ``/readyz``.

A page is computed at the request, from the launcher's answer on its socket and from the catalog. So
a page shows what ``pgsub status`` shows at the same moment, and a launcher whose loop hangs shows
as not alive. ``/livez`` reads nothing but the launcher's answer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from prometheus_client.exposition import choose_encoder

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore
from config.guc import Settings, stored_settings
from config.monitor_limits import (
    HEALTH_ANSWER_SECONDS,
)
from subscriber.status.health import Health, liveness, readiness
from subscriber.status.metrics import VIEW_NAMES, Snapshot
from subscriber.status.processes import ProcessUse, process_use
from subscriber.status.publisher_slots import PublisherSlots, ask_publisher
from subscriber.status.views import VIEWS
from workers.lake.server.known_jars import JARS
from workers.process.launcher_client import LauncherStatus, query_launcher
from workers.publisher.slot_lag import SlotLag

_TEXT: Final = "text/plain; charset=utf-8"
_INDEX: Final = "/metrics\n/livez\n/readyz\n"


@dataclass(frozen=True, slots=True)
class Page:
    """An answer: HTTP status, content type and content."""

    status: int
    content_type: str
    content: bytes


class Pages:
    """Computes pages for several threads. ``ask`` is for the tests."""

    def __init__(
        self,
        data_dir: Path,
        store: CatalogStore,
        ask: Callable[[Subscription, Settings], SlotLag | None] = ask_publisher,
    ) -> None:
        self._data_dir = data_dir
        self._store = store
        self._slots = PublisherSlots(lambda sub: ask(sub, self._settings()))
        self._versions = _versions()

    def get(self, target: str, accept: str = "") -> Page:
        """The page of a request's target."""
        found = urlsplit(target)
        verbose = "verbose" in parse_qs(found.query, keep_blank_values=True)
        try:
            match found.path:
                case "/metrics":
                    return self._metrics(accept)
                case "/livez":
                    return _health_page(liveness(self._data_dir), verbose)
                case "/readyz":
                    return _health_page(readiness(self._data_dir, self._store), verbose)
                case "/":
                    return Page(200, _TEXT, _INDEX.encode())
        except ReplicationError as error:
            return Page(503, _TEXT, f"unavailable: SQLSTATE {error.code}\n".encode())
        return Page(404, _TEXT, f"not found; there are:\n{_INDEX}".encode())

    def _metrics(self, accept: str) -> Page:
        status = query_launcher(self._data_dir, HEALTH_ANSWER_SECONDS)
        if status is None:
            return Page(503, _TEXT, b"the launcher is not running\n")
        settings = self._settings()
        subs = self._store.subscriptions()
        answers = self._slots.answers(subs)
        snapshot = Snapshot(
            now=time.time_ns() // 1000,
            status=status,
            rows={name: VIEWS[name].rows(self._store, status.workers) for name in VIEW_NAMES},
            slots=answers,
            processes=_processes(status, subs),
            versions=self._versions,
            per_table=settings.metrics_per_table,
        )
        encode, content_type = choose_encoder(accept)
        return Page(200, content_type, encode(snapshot))

    def _settings(self) -> Settings:
        return stored_settings(self._store.settings())


def _health_page(health: Health, verbose: bool) -> Page:
    text = health.report(verbose=verbose)
    return Page(200 if health.ok else 503, _TEXT, text.encode(errors="backslashreplace"))


def _processes(
    status: LauncherStatus, subs: Sequence[Subscription]
) -> dict[tuple[str, str], ProcessUse]:
    """The use of the launcher, the lake server and each apply worker.

    Sync workers come and go: a sum over them would not be a counter.
    """
    names = {sub.oid: sub.subname for sub in subs}
    pids = {("launcher", ""): status.pid, ("lake_server", ""): status.lake_pid}
    for row in status.workers:
        if not row.relid and row.subid in names:
            pids["apply", names[row.subid]] = row.pid
    found = {key: process_use(pid) for key, pid in pids.items()}
    return {key: use for key, use in found.items() if use is not None}


def _versions() -> dict[str, str]:
    """Of pgsub, Spark and Iceberg's runtime."""
    iceberg = next((jar.version for jar in JARS if re.match("iceberg-spark", jar.artifact)), "")
    return {
        "version": version("pg-lakehouse-subscriber"),
        "spark": version("pyspark"),
        "iceberg": iceberg,
    }
