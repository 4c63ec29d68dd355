"""Give the memory of an idle lake server back to the system.

A batch leaves garbage, and Java keeps the pages of a heap that has grown: after an hour of work the
server has hundreds of megabytes that no object needs. A heap that shrinks and grows with every
batch would cost more than the memory is worth, so Java keeps more free heap while the
server works. The watch of the lake server looks at the server's processor time at every heartbeat::

      0  a batch ended             40 s of processor time since the server's start
     30  heartbeat: 0.3 s more     quiet
     60  heartbeat: 0.3 s more     quiet for LAKE_QUIET_SECONDS: a full collection, a small heap
     90  heartbeat: 0.3 s more     nothing to give back: no work since
    400  a batch                   the heap grows again

A collection takes some tenths of a second of one processor, so LAKE_QUIET_WORK_SECONDS of work come
before the next.

The parallel collector of Java never shrinks the space of new objects. Measured on two processors
with six MERGEs into 1.5 M rows: processor time, and the server's memory after the collection::

    parallel    32.8 s    1,350 MB
    G1          32.7 s      440 MB
    serial      30.7 s      490 MB
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from config.monitor_limits import (
    LAKE_QUIET_SECONDS,
    LAKE_QUIET_SHARE,
    LAKE_QUIET_WORK_SECONDS,
    LAKE_SMALL_HEAP_BYTES,
    NATIVE_TRIM_SECONDS,
    SERIAL_COLLECTOR_THREADS,
)
from workers.lake.api.connection import GatewayConnections

_FACTORY: Final = "java.lang.management.ManagementFactory"
_DIAGNOSTIC: Final = "com.sun.management.HotSpotDiagnosticMXBean"
_TICKS: Final = os.sysconf("SC_CLK_TCK")

_AT_WORK: Final = {"MinHeapFreeRatio": 20, "MaxHeapFreeRatio": 45}
_IDLE: Final = {"MinHeapFreeRatio": 5, "MaxHeapFreeRatio": 10}
"""Per cent of the heap that may be free after a collection, with work and without.

Java's own limits are 40 and 70. With the limits above batches of forty tables keep a heap of 280 MB
in place of 320 MB, at the same processor time. A CTAS of fifty columns keeps 1.1 in place of 1.7 GB
and takes 6 % longer.
"""

_FOR_FEW_PROCESSORS: Final = (
    "-XX:+UseSerialGC",
    "-XX:-ShrinkHeapInSteps",
    # New objects get a fifth of the heap, in place of a third: 20 MB less with forty tables.
    "-XX:NewRatio=4",
    # Spark's buffers outside the heap come from arenas, by default two for each processor. Each
    # arena keeps the 4 MB chunks that it has used.
    "-Dio.netty.allocator.numDirectArenas=1",
)
_LATE_COMPILATION: Final = (
    "-XX:Tier3InvocationThreshold=1000",
    "-XX:Tier3MinInvocationThreshold=500",
    "-XX:Tier3CompileThreshold=10000",
)
"""Calls of a method before Java's first compiler takes it; by default 200, 100 and 2,000.

The first compiler's code counts calls and types, and is three quarters of all compiled code. Most
methods that are called some hundred times are part of a start, and are hardly called again. After
copies and 45 s of batches of forty tables the code has 45 in place of 65 MB, and what is outside
the heap 222 in place of 264 MB, at the same processor time (154 and 156 s).
"""


def memory_options(heap: int, processors: int) -> list[str]:
    """Options of the virtual machine for a heap of so many bytes that can be given back."""
    few = processors <= SERIAL_COLLECTOR_THREADS
    return [
        f"-Xmx{heap >> 20}m",
        # The serial collector never shrinks a heap below the size at the start.
        f"-Xms{min(heap, LAKE_SMALL_HEAP_BYTES) >> 20}m",
        *(_FOR_FEW_PROCESSORS if few else ["-XX:+UseG1GC"]),
        *(f"-XX:{name}={value}" for name, value in _AT_WORK.items()),
        *_LATE_COMPILATION,
        # Java copies an array that is read or written to a buffer outside the heap, and the thread
        # keeps the buffer: of this many bytes at most.
        "-Djdk.nio.maxCachedBufferSize=131072",
        # What the C library has freed goes back to the system, too.
        f"-XX:TrimNativeHeapInterval={round(NATIVE_TRIM_SECONDS * 1000)}",
        # At a random address each page of the class archive would be written to: 150 MB of memory
        # of its own, in place of pages of a file.
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:ArchiveRelocationMode=0",
        "-XX:+ExitOnOutOfMemoryError",
    ]


class QuietTime:
    """Tells from the processor time when a server has become quiet after work."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self._quiet_since: float | None = None
        self._given_back = 0.0

    def is_due(self, now: float, used: float) -> bool:
        """Is it time for a collection? ``used`` is the server's processor time, both in seconds."""
        last, self._last = self._last, (now, used)
        if last is None or used - last[1] > LAKE_QUIET_SHARE * (now - last[0]):
            self._quiet_since = None
            return False
        if self._quiet_since is None:
            self._quiet_since = last[0]
        if now - self._quiet_since < LAKE_QUIET_SECONDS:
            return False
        if used - self._given_back < LAKE_QUIET_WORK_SECONDS:
            return False
        self._given_back = used
        return True


def processor_seconds(process: Path) -> float | None:
    """The processor time of a process's folder in ``/proc``; None where there is no such folder."""
    try:
        text = (process / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def give_back(connections: GatewayConnections) -> None:
    """Collect all garbage, and shrink the heap to what is left."""
    with _narrow(connections):
        connections.jvm.java.lang.System.gc()


@contextmanager
def _narrow(connections: GatewayConnections) -> Iterator[None]:
    """Have Java keep almost no free heap for a while.

    The two limits may never cross: the lower limit is set first and restored last.
    """
    set_option = _set_option(connections)
    for name, value in _IDLE.items():
        set_option(name, str(value))
    try:
        yield
    finally:
        for name in reversed(_AT_WORK):
            set_option(name, str(_AT_WORK[name]))


def _set_option(connections: GatewayConnections) -> Callable[[str, str], None]:
    """The call that sets an option of the virtual machine.

    The bean's class is hidden from reflection; the methods of its interface are not.
    """
    jvm = connections.jvm
    of_class = jvm.java.lang.Class.forName
    interface, text = of_class(_DIAGNOSTIC), of_class("java.lang.String")

    def array(kind: Any, *values: Any) -> Any:
        made = connections.new_array(kind, len(values))
        for at, value in enumerate(values):
            made[at] = value
        return made

    a_class, an_object = jvm.java.lang.Class, jvm.java.lang.Object
    find = of_class(_FACTORY).getMethod("getPlatformMXBean", array(a_class, interface.getClass()))
    bean = find.invoke(None, array(an_object, interface))
    put = interface.getMethod("setVMOption", array(a_class, text, text))

    def set_option(name: str, value: str) -> None:
        put.invoke(bean, array(an_object, name, value))

    return set_option
