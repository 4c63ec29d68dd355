"""PostgreSQL's own subscriber beside ours: the oracle of the flows.

Its rows are read as plain Python values in the types the lake keeps; a type that the lake keeps
as text is read as text here too, so that the two sides compare with ``==``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from psycopg import sql

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database
from tests.servers import programs
from tests.waiting import wait_until

TWIN_CONF: dict[str, str | int] = {
    "max_logical_replication_workers": 16,
    "max_sync_workers_per_subscription": 4,
    "wal_retrieve_retry_interval": "10ms",
    "wal_receiver_status_interval": "1s",
    "track_commit_timestamp": "on",
    "max_prepared_transactions": 64,
}

# Types the lake keeps as they are, and arrays of these (pg_type.typname). The rest is text, and
# arrays of the rest are arrays of text.
NATIVE = frozenset(
    {
        "bool", "int2", "int4", "int8", "float4", "float8", "text", "varchar", "bpchar", "name",
        "bytea", "date", "timestamp", "timestamptz",
    }
)  # fmt: skip

_COLUMNS = """
SELECT a.attname, coalesce(base.typname, t.typname),
       coalesce(nullif(t.typtypmod, -1), a.atttypmod), e.typname
  FROM pg_attribute a
  JOIN pg_type t ON t.oid = a.atttypid
  LEFT JOIN pg_type base ON base.oid = t.typbasetype AND t.typtype = 'd'
  LEFT JOIN pg_type e ON e.oid = coalesce(base.typelem, t.typelem)
        AND coalesce(base.typcategory, t.typcategory) = 'A'
 WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attnum
"""


class NativeTwin:
    """A second server whose own logical-replication workers subscribe to a publisher of ours.

    ``settings`` differ from those that a twin has otherwise.
    """

    def __init__(self, version: int = 18, **settings: str) -> None:
        conf = {**TWIN_CONF, **settings}
        if version >= 18:  # before, there are as many origins as slots
            conf["max_active_replication_origins"] = 64
        self.server = EmbeddedPublisher(version, conf=conf, programs=programs(version))

    def subscribe(
        self,
        here: Database,
        publisher: Database,
        name: str,
        publications: Sequence[str],
        **options: str,
    ) -> list[str]:
        """``CREATE SUBSCRIPTION … WITH (streaming = on, …)``; what it said.

        ``streaming = parallel``, the default, crashes the apply worker of 18.4 under a workload
        with savepoints and large transactions.
        """
        words = {"streaming": "on", **options}
        statement = sql.SQL(
            "CREATE SUBSCRIPTION {name} CONNECTION {conninfo}"
            " PUBLICATION {publications} WITH ({with_})"
        ).format(
            name=sql.Identifier(name),
            conninfo=sql.Literal(publisher.dsn),
            publications=sql.SQL(", ").join(map(sql.Identifier, publications)),
            with_=sql.SQL(", ").join(
                sql.SQL("{} = {}").format(sql.Identifier(word), sql.Literal(value))
                for word, value in words.items()
            ),
        )
        return here.said(statement.as_string(None))

    def wait_synced(self, here: Database, timeout: float = 120.0) -> None:
        """Until no table of the database's subscriptions is outside r and s."""
        unsynced = (
            "SELECT count(*) FROM pg_subscription_rel sr JOIN pg_subscription s ON s.oid = srsubid"
            " WHERE srsubstate NOT IN ('r', 's')"
        )
        wait_until(
            lambda: here.value(unsynced) == 0,
            timeout,
            lambda: f"the twin's tables are synced; its log ends: {self.log_tail()}",
        )

    def wait_ready(self, here: Database, timeout: float = 60.0) -> None:
        """Until every table is r. Whoever has caught up has passed each table's s."""
        others = "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'"
        wait_until(
            lambda: here.value(others) == 0,
            timeout,
            lambda: f"the twin's tables are ready; its log ends: {self.log_tail()}",
        )

    def wait_caught_up(self, publisher: Database, name: str, timeout: float = 120.0) -> None:
        """Until the walsender of ``name`` streams and has replayed what is written by now."""
        target = publisher.lsn()
        state = (
            "SELECT state = 'streaming' AND replay_lsn >= %s FROM pg_stat_replication"
            " WHERE application_name = %s"
        )
        wait_until(
            lambda: publisher.execute(state, (target, name)) == [(True,)],
            timeout,
            lambda: f"the twin replayed {target}; its log ends: {self.log_tail()}",
        )

    def log_tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.server.log_file.read_text(errors="replace").splitlines()[-12:])


def column_names(here: Database, table: str) -> list[str]:
    """The columns of a table, in their order."""
    return [row[0] for row in here.execute(_COLUMNS, (table,))]


def native_rows(
    here: Database, table: str, columns: Sequence[str] | None = None
) -> list[tuple[Any, ...]]:
    """All rows of a table as Python values, in an order that depends only on the rows."""
    known = {
        name: (typname, typmod, elem)
        for name, typname, typmod, elem in here.execute(_COLUMNS, (table,))
    }
    wanted = list(known) if columns is None else list(columns)
    items = sql.SQL(", ").join(_read(name, *known[name]) for name in wanted)
    query = sql.SQL("SELECT {} FROM {}").format(items, sql.SQL(table))
    return in_order(here.execute(query.as_string(None)))


def native_state(here: Database, table: str) -> str:
    """The state letter of a table that is in one subscription."""
    query = "SELECT srsubstate FROM pg_subscription_rel WHERE srrelid = %s::regclass"
    return str(here.value(query, (table,)))


def in_order(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows in the order of their representation; instants in UTC."""
    return sorted((tuple(map(_plain, row)) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


def _read(name: str, typname: str, typmod: int, elem: str | None) -> sql.Composable:
    column = sql.Identifier(name)
    bounded = "numeric" in (typname, elem) and typmod > 0
    if (elem or typname) in NATIVE or bounded:
        return column
    return sql.SQL("{}::text[]" if elem else "{}::text").format(column)
