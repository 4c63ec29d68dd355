"""Naps of a reader of libpq: the clock, the sleep, and the bytes that wait in the socket.

A reader that keeps up costs the publisher dearly: the walsender sends each message separately, and
on TCP each message becomes a packet. So when the socket is nearly empty the drain kernel naps,
twice as long each time while messages keep coming, up to a longest nap: messages sent in the
meantime go out, and come in, in one piece. Half a million small rows cost a walsender on this
machine 3.8 to 4.5 s of CPU with naps of 0.2 ms and 1.9 to 2.8 s with naps of 20 ms, with a receive
buffer that a nap fills (``workers.publisher.connection``); the reader's CPU time went from 1.0 to
0.2 s. Naps shrink again whenever no message came, to the first nap if little had come before: a
trickle is passed on at once.
"""

from __future__ import annotations

from typing import Any, Final

from workers.columnar import libpq
from workers.columnar.kernel import kernel

_FIONREAD: Final = 0x541B  # Linux: bytes that can be read from a socket


@kernel
def now(words: Any) -> Any:
    """Nanoseconds of the monotonic clock (Linux's clock 1)."""
    libpq.clock_gettime(1, words.ctypes.data)
    return words[0] * 1_000_000_000 + words[1]


@kernel
def nap(words: Any, nanoseconds: int) -> None:
    """Sleep; ``words`` is room for a time."""
    words[0], words[1] = 0, nanoseconds
    libpq.nanosleep(words.ctypes.data, 0)


@kernel
def waiting(conn: int, words: Any) -> Any:
    """The number of bytes in the socket."""
    words[0] = 0  # the answer is an int, half a word
    libpq.ioctl(libpq.socket(conn), _FIONREAD, words.ctypes.data)
    return words[0]
