"""The clock, the sleep, and the bytes in a socket, as kernels see them."""

from __future__ import annotations

import select
import socket
import threading
import time

import numpy as np

from tests.workers.columnar.stub_publisher import keepalive, streaming
from workers.columnar import libpq
from workers.columnar.naps import nap, now, waiting


def test_the_clock_is_the_monotonic_one_and_a_nap_takes_its_time() -> None:
    libpq.register_symbols()
    words = np.zeros(3, np.int64)
    before = time.monotonic_ns()
    first = now(words)
    nap(words, 2_000_000)
    second = now(words)
    assert before <= first
    assert second - first >= 2_000_000
    assert second <= time.monotonic_ns()


def test_the_bytes_that_wait_are_those_that_nobody_has_read() -> None:
    libpq.register_symbols()
    words = np.full(3, -1, np.int64)
    asked = threading.Event()

    def script(sock: socket.socket) -> None:
        asked.wait(10)
        sock.sendall(keepalive(1))

    with streaming(script) as conn:
        pointer = getattr(conn, "pgconn_ptr")  # noqa: B009 - the protocol class lacks it
        assert waiting(pointer, words) == 0
        asked.set()
        select.select([conn.socket], [], [], 10)
        assert waiting(pointer, words) == len(keepalive(1))
