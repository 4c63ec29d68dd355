"""Iceberg's thread pools: a waiting thread looks every 10 ms whether a pool has finished."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from py4j.protocol import Py4JError

_FILE_IO: Final = "org.apache.iceberg.hadoop.HadoopFileIO"
_REMOVING_POOL: Final = "executorService"
_THREAD_POOLS: Final = "org.apache.iceberg.util.ThreadPools"
_READING_POOL: Final = "DELETE_WORKER_POOL"


def remove_at_once(gateway: Any, in_this_thread: Any) -> None:
    """Make the committing thread remove local files, without a pool.

    Every commit removes a metadata file that is too old, and waits for a thread of the pool: 10 of
    the 20 ms of a table's publication. Iceberg has no public setting for the pool. The change
    concerns all removals by Hadoop's file systems in the server.
    """
    with contextlib.suppress(Py4JError):  # an Iceberg version without the field
        pool = gateway.jvm.java.lang.Class.forName(_FILE_IO).getDeclaredField(_REMOVING_POOL)
        pool.setAccessible(True)
        pool.set(None, in_this_thread)


def read_deletes_at_once(gateway: Any, in_this_thread: Any) -> None:
    """Make the task that reads a data file read the delete files, without a pool.

    Iceberg hands delete files to a pool and looks every 10 ms whether the pool has read the files.
    A scan of 3 M rows took 1.47 times as long as without deletes, and now takes 1.26 times. The
    pool is a constant.
    """
    with contextlib.suppress(Py4JError):  # an Iceberg or Java version without the field
        of = gateway.jvm.java.lang.Class.forName
        held = of("sun.misc.Unsafe").getDeclaredField("theUnsafe")
        held.setAccessible(True)
        unsafe = held.get(None)
        pool = of(_THREAD_POOLS).getDeclaredField(_READING_POOL)
        where = unsafe.staticFieldBase(pool), unsafe.staticFieldOffset(pool)
        unsafe.putObjectVolatile(*where, in_this_thread)
