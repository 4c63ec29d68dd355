"""Hand the keys of a table's store to Spark's tasks on this machine.

What a task gets from the worker is part of Spark's plan, and a plan shows no key. So a task gets
the store without keys, and the path of a file of mode 0600 that has the keys. The file exists for
the time of a copy. After a power cut the folder goes with the worker's staged files.

Keys that the catalog has lent, tokens and signatures may end while a long copy runs: Spark writes
such a copy, and gets others in time.

Trace: the worker writes ``{"key": …, "secret": …}`` to ``store-keys``, and hands over the layout of
the table with the store ``(bucket, no keys)``. The task reads ``store-keys`` and writes data files.
The copy ends, and the file goes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from workers.lake.storage.object_store import ACCESS, ObjectStore
from workers.lake.storage.store import TableStore


def can_hand_over(store: TableStore, folder: str) -> bool:
    """May a task on this machine reach the store? ``folder`` is for the file, if there is one."""
    if not isinstance(store, ObjectStore):
        return store.has_cheap_requests
    return bool(folder) and store.access is not None and not store.access.may_end


@contextmanager
def handed_over(store: TableStore, folder: str) -> Iterator[tuple[TableStore, str]]:
    """Yield the store without keys, and the path of the file with the keys; empty for a folder."""
    if not isinstance(store, ObjectStore) or store.access is None:
        yield store, ""
        return
    for each in (Path(folder).parent, Path(folder)):  # with parents=True the umask would rule
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = Path(folder) / "store-keys"
    path.unlink(missing_ok=True)
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(asdict(store.access), file)
        yield ObjectStore(store.bucket), str(path)
    finally:
        path.unlink(missing_ok=True)


def with_keys(store: TableStore, path: str) -> TableStore:
    """The store of ``handed_over`` with the keys, in a task."""
    if not isinstance(store, ObjectStore) or not path:
        return store
    given = json.loads(Path(path).read_text())
    return replace(store, access=ACCESS[store.bucket.kind](**given))
