"""Java objects end with the process that has them, whatever ends the process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.fix_lake import Lake
from workers.lake.api import own_gateway
from workers.lake.api.gateway import gateway_address
from workers.lake.api.own_gateway import Owner, OwnGateway, close_ended, count_objects

OBJECTS = 50


def where(lake: Lake) -> tuple[int, str]:
    found = gateway_address(lake.url)
    assert found is not None
    return found


def make_objects(gateway: OwnGateway) -> list[object]:
    return [gateway.connections.jvm.java.util.ArrayList() for _ in range(OBJECTS)]


def live(port: int, secret: str) -> None:
    """One life of a worker: objects in Java, and an end without a word."""
    made = make_objects(OwnGateway.open(port, secret))
    assert len(made) == OBJECTS
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_owner_is_read_back_and_other_names_are_no_owner() -> None:
    owner = Owner.this_process()
    assert Owner.parse(f"{owner} 9f") == owner
    for name in ("o12", "GATEWAY_SERVER", "pgsub", "pgsub 1 2", "pgsub 1 two 3 4"):
        assert Owner.parse(name) is None


def test_who_has_ended() -> None:
    this = Owner.this_process()
    assert not this.has_ended()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    other = Owner(this.namespace, process.pid, this.started)
    assert other.has_ended(), "a later process with the id of the owner"
    assert not Owner(this.namespace, process.pid, 0).has_ended(), "a system without start times"
    assert not Owner(this.namespace + 1, process.pid, 1).has_ended(), "in another container"
    process.communicate()
    assert Owner(this.namespace, process.pid, 0).has_ended()


@pytest.mark.spark
def test_killed_workers_leave_no_object(lake_server: Lake) -> None:
    port, secret = where(lake_server)
    close_ended(port, secret)
    before = count_objects(port, secret)
    fork = multiprocessing.get_context("fork")
    for _ in range(4):
        worker = fork.Process(target=live, args=[port, secret])
        worker.start()
        worker.join()
        assert worker.exitcode == -signal.SIGKILL
        held = count_objects(port, secret)
        assert before + OBJECTS <= held < before + 2 * OBJECTS, "of the last worker alone"
    assert close_ended(port, secret) == 1
    assert count_objects(port, secret) == before
    assert close_ended(port, secret) == 0


@pytest.mark.spark
def test_a_process_that_closes_its_gateway_leaves_no_object(lake_server: Lake) -> None:
    port, secret = where(lake_server)
    close_ended(port, secret)
    before = count_objects(port, secret)
    gateways = [OwnGateway.open(port, secret) for _ in range(2)]
    made = [make_objects(gateway) for gateway in gateways]
    assert count_objects(port, secret) >= before + 2 * OBJECTS
    gateways[0].close()
    assert gateways[1].connections.jvm.java.util.ArrayList().size() == 0
    gateways[1].close()
    assert count_objects(port, secret) == before
    assert len(made) == 2


@pytest.mark.spark
def test_a_gateway_that_goes_during_the_count_holds_nothing(
    lake_server: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, secret = where(lake_server)
    close_ended(port, secret)
    before = count_objects(port, secret)
    listed = own_gateway._owners

    def with_one_that_went(gateway: Any) -> list[tuple[str, Owner]]:
        return [*listed(gateway), (f"{Owner.this_process()} gone", Owner.this_process())]

    monkeypatch.setattr(own_gateway, "_owners", with_one_that_went)
    assert count_objects(port, secret) == before
