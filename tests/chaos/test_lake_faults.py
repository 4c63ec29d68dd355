"""Faults of store and catalog are planned beside the others, and count when requests met them."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.faults import Fault
from tests.chaos.lake_faults import LAKE_KINDS, cause_at_lake
from tests.chaos.plan import DRAWN, S3, WORDS, Choices, make_plan, plan_of
from tests.lake.http_proxy import HttpProxy
from tests.waiting import wait_until

FILE = "/lake/warehouse/s1/acc/data/new.parquet"


def test_a_seed_on_s3_has_faults_of_the_lake_beside_its_own() -> None:
    kinds: set[str] = set()
    for seed in range(1, 101):
        local, there = make_plan(seed), plan_of(seed, Choices(lake=S3))
        more = [fault for fault in there.faults if fault.kind in LAKE_KINDS]
        assert 2 <= len(more) <= 4
        assert [fault for fault in there.faults if fault not in more] == list(local.faults)
        assert there.streamed == local.streamed
        kinds.update(fault.kind for fault in more)
    assert kinds == set(LAKE_KINDS)
    assert not plan_of(1, Choices(lake=S3, faults=False)).faults


def test_a_seed_draws_a_writer() -> None:
    drawn = [plan_of(seed, Choices(writer=DRAWN)) for seed in range(1, 61)]
    assert {plan.writer for plan in drawn} == set(WORDS)
    assert {plan_of(seed, Choices(writer="files")).writer for seed in range(1, 9)} == {"files"}
    assert [make_plan(seed).faults for seed in range(1, 61)] == [plan.faults for plan in drawn]


@pytest.fixture
def stack() -> Iterator[Any]:
    """Proxies before a server that answers every request with four bytes."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        with HttpProxy(address) as store, HttpProxy(address) as catalog:
            yield SimpleNamespace(store_proxy=store, catalog_proxy=catalog)
        server.shutdown()


class _Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"rows")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def get(proxy: HttpProxy) -> bytes:
    with urllib.request.urlopen(proxy.endpoint + FILE) as answer:  # noqa: S310 - our own server
        return bytes(answer.read())


def test_a_fault_counts_the_requests_that_met_it(stack: Any) -> None:
    refused = Fault(0, "store refuses", 20.0, times=2, status=503)
    hit: list[str] = []
    act = threading.Thread(
        target=lambda: hit.append(cause_at_lake(refused, stack, threading.Event()))
    )
    act.start()
    wait_until(lambda: stack.store_proxy.faults, 10, "the fault waits")
    for _ in range(2):
        with pytest.raises(urllib.error.HTTPError):
            get(stack.store_proxy)
    act.join()
    assert hit == ["2 requests"]
    assert get(stack.store_proxy) == b"rows"


@pytest.mark.parametrize("kind", sorted(set(LAKE_KINDS)))
def test_everything_is_as_before_behind_a_fault_that_met_nobody(stack: Any, kind: str) -> None:
    fault = Fault(0, kind, 0.05, times=1, status=503)
    hit = cause_at_lake(fault, stack, threading.Event())
    assert hit == (kind.split()[0] if kind.endswith("down") else "")
    assert get(stack.store_proxy) == get(stack.catalog_proxy) == b"rows"
