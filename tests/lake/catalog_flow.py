"""A copy and changes through one catalog, beside PostgreSQL's own subscriber.

Every catalog gets the same: a plain and a partitioned table, inserts, updates, deletes, rows that
go to other partitions, and a worker that is killed on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Final

import pyarrow as pa

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.harness import Pgsub
from tests.integration.flow import Flow
from tests.integration.readers import by_spark
from tests.twin import NativeTwin

TABLES: Final = ("orders", "parted")


class ReadBySpark(Pgsub):
    """``pgsub`` whose tables the tests read through Spark: they have no client of the catalog."""

    def arrow(self, schema: str, table: str) -> pa.Table:
        """What ``main`` of the table holds now."""
        return by_spark(self, schema, table)


@contextmanager
def catalog_flow(
    pgsub: Pgsub, twin: NativeTwin, publisher: EmbeddedPublisher, name: str
) -> Iterator[Flow]:
    """The flow, run to its end; the rows were recorded as ``copied`` and as ``changed``."""
    with closing(Flow(pgsub, twin, publisher, name)) as flow:
        flow.both(
            "CREATE TABLE orders (id int PRIMARY KEY, name text, price numeric(10,2))",
            "CREATE TABLE parted (id int PRIMARY KEY, name text, at timestamp)",
        )
        flow.pub.run(
            "INSERT INTO orders SELECT i, 'row ' || i, i / 4.0 FROM generate_series(1, 20000) i",
            "INSERT INTO parted SELECT i, 'row ' || i, timestamp '2026-01-01' + i * interval '1 h'"
            " FROM generate_series(1, 300) i",
            f"CREATE PUBLICATION pub_{name} FOR TABLES IN SCHEMA {name}",
        )
        tables = {"parted": {"partition_by": ["days(at)"]}}
        subscription = flow.subscribe("sub", [f"pub_{name}"], tables=tables)
        flow.checkpoint("copied", *TABLES)
        _change(flow, 1)
        flow.pgsub.kill_worker(subscription)
        _change(flow, 2)
        flow.checkpoint("changed", *TABLES)
        yield flow


def expect_files(flow: Flow, found: Iterable[str]) -> None:
    """The tables' files are among ``found``, and are of the writer in the flow's name."""
    files = [name for name in found if f"/{flow.name}/" in name]
    assert [name for name in files if name.endswith("metadata.json")]
    writers = {row["lake_table"]: row["writer"] for row in flow.pgsub.status("lake_tables")}
    [writer] = {writers[table] for table in TABLES}
    assert flow.name.endswith(writer)
    rows = [name for name in files if name.endswith(".parquet")]
    assert rows
    ours = [name for name in rows if "/data/pgsub-" in name]
    assert ours == (rows if writer == "files" else [])


def _change(flow: Flow, turn: int) -> None:
    first = 100_000 * turn
    flow.pub.run(
        f"INSERT INTO orders SELECT i, 'new', NULL FROM generate_series({first}, {first + 999}) i",
        f"UPDATE orders SET name = upper(name) WHERE id % 10 = {turn}",
        f"DELETE FROM orders WHERE id % 20 = {turn}",
        f"UPDATE parted SET at = at + interval '1 day' WHERE id % 7 = {turn}",
    )
