"""A command waits for the subscription's workers."""

from __future__ import annotations

import pytest

from catalog.errcodes import (
    ObjectInUse,
)
from subscriber.commands import subscription_row
from subscriber.commands.create_drop import (
    create_subscription,
    disable_subscription,
)
from tests.subscriber.twins import (
    Around,
    WorkerTwin,
    statement,
)


def test_worker_that_does_not_end(world: Around, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_row, "WORKER_EXIT_SECONDS", 0.0)
    sub = create_subscription(statement(), world.context)
    world.workers[:] = [[WorkerTwin(sub.oid, 77)]] * 2
    with pytest.raises(ObjectInUse, match="do not end") as caught:
        disable_subscription("mysub", world.context)
    assert caught.value.detail == "Processes: 77."
