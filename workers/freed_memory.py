"""Give freed memory back to the system.

Two allocators keep freed pages. Arrow's allocator, jemalloc, keeps pages for a second, until a
thread of the allocator gives the pages back. A forked process has no such thread: pages stay until
the same part of the allocator is used again. ``MemoryPool.release_unused`` does nothing with
jemalloc: pyarrow 26 asks for the purge by a name unknown to jemalloc. After 200,000 random updates
of 3 M rows a worker kept 110 MB of pages without any content. glibc keeps free pages between
others, for every thread of the past: 40 MB in the same worker.

So an apply worker keeps no pages for Arrow (``keep_none``), and gives back the free pages of glibc
(``give_back``) after a look-up and after a table's part of a batch.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from config.monitor_limits import FREED_MEMORY_SHARE


def keep_none() -> None:
    """Let Arrow's allocator give pages back at once, in threads whose first array is yet to come.

    The price is system time for each large array. A copy makes large arrays all the time, and does
    without.
    """
    if pa.default_memory_pool().backend_name == "jemalloc":
        pa.jemalloc_set_decay_ms(0)


class FreedMemory:
    """Trims memory for no more than ``FREED_MEMORY_SHARE`` of the time.

    Small batches come many times a second, and leave little: most small batches trim nothing.
    """

    def __init__(
        self, trim: Callable[[], Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._trim = trim
        self._clock = clock
        self._next_at = clock()
        self._giving = threading.Lock()

    def give_back(self) -> None:
        """Trim, unless another thread does so now, or the last time was too short ago."""
        if not self._giving.acquire(blocking=False):
            return
        try:
            began = self._clock()
            if began >= self._next_at:
                self._trim()
                ended = self._clock()
                self._next_at = ended + (ended - began) / FREED_MEMORY_SHARE
        finally:
            self._giving.release()


def _trim() -> None:
    pa.default_memory_pool().release_unused()
    if _MALLOC_TRIM is not None:
        _MALLOC_TRIM(0)


def _malloc_trim() -> Any:
    """The C library's function; None if the system has none."""
    function = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if function is not None:
        function.argtypes = [ctypes.c_size_t]
    return function


_MALLOC_TRIM: Final = _malloc_trim()
give_back: Final = FreedMemory(_trim).give_back
"""Give back what is free in this process."""
