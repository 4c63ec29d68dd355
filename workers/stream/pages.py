"""Give the pages of a batch on disk back to the kernel while the batch is applied.

A batch on disk is a mapped file. Each page that was read counts as memory of the process. A walk
through a large transaction would make the whole transaction memory of the process. A page that was
given back comes from the page cache when the walk reads the page again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from config.limits import GIVE_PAGES_BACK_SECONDS
from workers.stream.batch import Batch


@contextmanager
def giving_pages_back(batch: Batch) -> Iterator[None]:
    """Give the pages of the batch's mapping back again and again, until the block ends."""
    if batch.mapping is None:
        yield
        return
    done = threading.Event()
    giver = threading.Thread(target=_give_back, args=(batch, done), name="pages", daemon=True)
    giver.start()
    try:
        yield
    finally:
        done.set()
        giver.join()


def _give_back(batch: Batch, done: threading.Event) -> None:
    while not done.wait(GIVE_PAGES_BACK_SECONDS):
        batch.give_pages_back(batch.start, batch.end)
