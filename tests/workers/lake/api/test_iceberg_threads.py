"""The embedded lake server does its own removals and reads deletes without a pool of threads."""

from __future__ import annotations

from workers.lake.api import iceberg_threads
from workers.lake.api.gateway import Gateway


def test_no_commit_waits_for_a_pool_of_threads(lake_gateway: Gateway) -> None:
    """Where that cannot be said any more, removals take 10 ms again, and nobody else would tell."""
    with lake_gateway.api("testing") as api:
        assert "Direct" in api.in_this_thread.getClass().getName()
    files = lake_gateway.connections.jvm.java.lang.Class.forName(iceberg_threads._FILE_IO)
    pool = files.getDeclaredField(iceberg_threads._REMOVING_POOL)
    pool.setAccessible(True)
    assert "Direct" in pool.get(None).getClass().getName()


def test_no_reader_waits_for_a_pool_of_threads(lake_gateway: Gateway) -> None:
    """The same of 10 ms for each data file with deletes, in each scan."""
    with lake_gateway.api("testing"):
        pass
    pools = lake_gateway.connections.jvm.org.apache.iceberg.util.ThreadPools
    assert "Direct" in pools.getDeleteWorkerPool().getClass().getName()
