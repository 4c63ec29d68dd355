"""What the disk costs a batch: ``python -P -m tests.bench.durable``, from the project's root.

Batches of one transaction with 1,000 inserts go into one table of an embedded lake, without a
publisher. The worker waits for the disk (``on``), goes on (``off``; the last wait counts), or puts
nothing onto the disk (``never``: no value of the setting, to compare with). The three take turns in
every round, so a busy machine is busy for all of them.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, cast
from unittest import mock

from catalog.pg_lsn import InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.store_sqlite import CatalogStore
from config.lake import embedded_catalog_file
from tests.fix_lake import LakeSettings
from tests.jvm import expect_short_lives
from tests.workers.subscribed import COLUMNS, EPOCH, Subscribed
from tests.workers.transactions import batch, relation, row
from workers.apply.apply_batch import Applier
from workers.lake.iceberg.destination import IcebergDestination
from workers.lake.server.lake_server import LakeServer
from workers.lake.storage.file_system import FileSystem
from workers.lake.table import Identity, LakeIdent, Stamp
from workers.proto.messages import Insert

WAYS: Final = ("on", "off", "never")
ROWS: Final = 1_000
BATCHES: Final = 20
ROUNDS: Final = 7
A = relation(1, "a", "id", "v")


@contextmanager
def applying(folder: Path) -> Iterator[tuple[Subscribed, Applier]]:
    """An apply worker with a table of a lake of its own."""
    server = LakeServer.start(folder, memory=1 << 30)
    try:
        with closing(CatalogStore.open(folder)) as store:
            world = Subscribed(store=store)
            dest = IcebergDestination(
                server.ready(),
                identity=Identity(world.sub.oid),
                staging_dir=folder / "staging",
                settings=LakeSettings(),
                format_version=2,
                remember_session=lambda *_: None,
                catalog_file=embedded_catalog_file(folder),
            )
            stamp = Stamp(origin_name(world.sub.oid), InvalidXLogRecPtr, EPOCH, InvalidXLogRecPtr)
            relid = world.rel("a").srrelid
            dest.create_table(
                LakeIdent("public", "a"), COLUMNS, owner="u", relid=relid, stamp=stamp
            )
            yield world, world.worker(cast("Any", dest))
            world.close()
            dest.close()
    finally:
        server.stop()


def seconds_of(world: Subscribed, worker: Applier, way: str, first: int) -> float:
    """The time of a batch, among ``BATCHES`` whose rows have the keys from ``first`` on."""
    value = "off" if way == "off" else "on"
    worker.sub = world.store.update_subscription(world.sub.oid, subsynccommit=value)
    received = [
        batch(
            [A, *(Insert(1, row(str(key), "1")) for key in range(start, start + ROWS))],
            after=start,
        )
        for start in range(first, first + BATCHES * ROWS, ROWS)
    ]
    begun = time.monotonic()
    for each in received:
        worker.apply_batch(each)
        worker.writer.maintain_changed_tables(worker.rels.values())
    worker.writer.wait_until_stored()
    return (time.monotonic() - begun) / BATCHES


def main() -> None:
    """Print each way's median time of a batch, and the ratio to ``never``."""
    expect_short_lives()
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    with (
        tempfile.TemporaryDirectory(prefix="pgsub-durable-") as name,
        applying(Path(name)) as (world, worker),
    ):
        for turn in range((ROUNDS + 1) * 3):
            way = WAYS[(turn + turn // 3) % 3]
            with mock.patch.object(FileSystem, "synchronise") if way == "never" else nullcontext():
                seconds = seconds_of(world, worker, way, turn * BATCHES * ROWS)
            found[way].append(seconds)
    for way, (_, *rounds) in found.items():  # the first is not counted: nothing is warm
        ratio = statistics.median(a / b for a, b in zip(rounds, found["never"][1:], strict=True))
        times = " ".join(f"{each * 1000:.1f}" for each in rounds)
        print(f"{way:6} {statistics.median(rounds) * 1000:7.1f} ms  {ratio:.2f} x never  ({times})")


if __name__ == "__main__":
    main()
