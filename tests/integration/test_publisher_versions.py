"""What each version of the publisher makes of our commands, and what it sends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription, TableOptions
from config.guc import Settings
from tests.fix_publisher import Database, type_of_its_own
from tests.servers import PINNED, every_version
from tests.waiting import wait_until
from workers.lake.table import LakeIdent
from workers.proto import decode
from workers.proto.messages import (
    Begin,
    ColumnStatus,
    Commit,
    Insert,
    Message,
    Origin,
    Relation,
    Type,
)
from workers.publisher.connect import connect
from workers.publisher.publications import fetch_published_types
from workers.publisher.remote_table import fetch_remote_table_info
from workers.publisher.sync_slot import create_sync_slot
from workers.stream.batch import Batch
from workers.stream.start import start_options, start_stream
from workers.tables.new_table import lake_columns

since_15 = pytest.mark.parametrize("each_database", every_version(18, since=15), indirect=True)
with_extensions = pytest.mark.parametrize(
    "each_database",
    [param for param in every_version() if param.values[0] in PINNED],
    indirect=True,
)
since_16 = pytest.mark.parametrize("each_database", every_version(18, since=16), indirect=True)
since_18 = pytest.mark.parametrize("each_database", every_version(18, since=18), indirect=True)


def streamed(
    database: Database,
    spool: Path,
    publication: str,
    *statements: str,
    origin: str = "any",
    binary: bool = False,
) -> list[Message]:
    """What arrives of the statements, each a transaction, through a slot made before them."""
    sub = Subscription("mysub", database.dsn, tuple(publication.split(",")), suborigin=origin)
    with closing(connect(database.dsn, database.name)) as conn:
        start = conn.create_slot(database.name, temporary=True, snapshot="nothing")
        database.run(*statements)
        end = LSN.parse(database.lsn())
        stream = start_stream(
            conn, sub, database.name, start, Settings(), spool,
            wake_main=lambda: None, report=lambda _: None, remember_flush=lambda _: None,
            binary=binary,
        )  # fmt: skip
        try:
            wait_until(lambda: stream.receiver._positions.last_received >= end, 60, "all has come")
            batch = stream.spool.take(1 << 30, 1 << 30)
            return list(messages(batch)) if batch else []
        finally:
            stream.end()


def messages(batch: Batch) -> Iterator[Message]:
    at, data = batch.start, batch.buf
    while at < batch.end:
        size = int.from_bytes(data[at : at + 4].tobytes(), "little")
        yield decode.message(data[at + 4 : at + 4 + size].tobytes())
        at += 4 + size


def kinds(found: Sequence[Message]) -> list[str]:
    return [type(each).__name__ for each in found]


def relations(found: list[Message]) -> list[tuple[str, list[str]]]:
    return [
        (each.relname, [column.name for column in each.columns])
        for each in found
        if isinstance(each, Relation)
    ]


def inserted(found: list[Message]) -> list[list[bytes | None]]:
    return [[column.value for column in each.new] for each in found if isinstance(each, Insert)]


def version(database: Database) -> int:
    return database.server.version


def test_every_kind_of_change(each_database: Database, tmp_path: Path) -> None:
    each_database.run(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE TABLE unpublished (id int)",
        'CREATE PUBLICATION "P q" FOR TABLE t',
    )
    found = streamed(
        each_database,
        tmp_path,
        "P q",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "UPDATE t SET v = 'c' WHERE id = 1",
        "INSERT INTO unpublished VALUES (1)",
        "DELETE FROM t WHERE id = 2",
        "TRUNCATE t",
    )
    changes = [each for each in found if not isinstance(each, Begin | Commit)]
    assert kinds(changes) == [
        *("Relation", "Insert", "Insert", "Update", "Delete"),
        *("Relation", "Truncate"),  # a table that gets another file is described anew
    ]
    empty = [
        first
        for first, second in pairwise(found)
        if isinstance(first, Begin) and isinstance(second, Commit)
    ]
    assert bool(empty) == (version(each_database) == 14), "only 14 sends empty transactions"


def test_a_partition_under_its_own_name_and_its_root_s(
    each_database: Database, tmp_path: Path
) -> None:
    each_database.run(
        "CREATE TABLE parent (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf (v text, id int NOT NULL)",
        "ALTER TABLE parent ATTACH PARTITION leaf FOR VALUES FROM (0) TO (10)",
        "CREATE PUBLICATION leaves FOR TABLE parent",
        "CREATE PUBLICATION root FOR TABLE parent WITH (publish_via_partition_root)",
    )
    leaves = streamed(each_database, tmp_path, "leaves", "INSERT INTO parent VALUES (1, 'a')")
    assert (relations(leaves), inserted(leaves)) == ([("leaf", ["v", "id"])], [[b"a", b"1"]])
    root = streamed(each_database, tmp_path, "root,leaves", "INSERT INTO parent VALUES (2, 'b')")
    assert relations(root) == [("parent", ["id", "v"]), ("leaf", ["v", "id"])]
    parent = next(each.relid for each in root if isinstance(each, Relation))
    assert [each.relid for each in root if isinstance(each, Insert)] == [parent]
    assert inserted(root) == [[b"2", b"b"]]


@pytest.mark.parametrize("origin", ["any", "none"])
def test_rows_from_elsewhere(each_database: Database, tmp_path: Path, origin: str) -> None:
    name = each_database.name
    each_database.run(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE PUBLICATION pub FOR TABLE t",
        f"SELECT pg_replication_origin_create('{name}')",
    )
    found = streamed(
        each_database,
        tmp_path,
        "pub",
        "INSERT INTO t VALUES (1)",
        f"SELECT pg_replication_origin_session_setup('{name}')",
        "INSERT INTO t VALUES (2)",
        origin=origin,
    )
    left_out = origin == "none" and version(each_database) >= 16
    assert inserted(found) == ([[b"1"]] if left_out else [[b"1"], [b"2"]])
    assert [each.name for each in found if isinstance(each, Origin)] == ([] if left_out else [name])


@since_15
def test_filters_lists_and_schemas(each_database: Database, tmp_path: Path) -> None:
    each_database.run(
        "CREATE TABLE t (id int PRIMARY KEY, hidden text, v text)",
        "CREATE SCHEMA whole",
        "CREATE PUBLICATION part FOR TABLE t (id, v) WHERE (id > 5)",
        "CREATE PUBLICATION schemas FOR TABLES IN SCHEMA whole",
    )
    found = streamed(
        each_database,
        tmp_path,
        "part,schemas",
        "INSERT INTO t VALUES (1, 'h', 'a'), (6, 'h', 'b')",
        "CREATE TABLE whole.later (id int)",
        "INSERT INTO whole.later VALUES (7)",
    )
    assert relations(found) == [("t", ["id", "v"]), ("later", ["id"])]
    assert inserted(found) == [[b"6", b"b"], [b"7"]]


@since_18
def test_generated_columns(each_database: Database, tmp_path: Path) -> None:
    each_database.run(
        "CREATE TABLE t (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED)",
        "CREATE PUBLICATION pub FOR TABLE t WITH (publish_generated_columns = stored)",
    )
    found = streamed(each_database, tmp_path, "pub", "INSERT INTO t (id) VALUES (3)")
    assert (relations(found), inserted(found)) == ([("t", ["id", "g"])], [[b"3", b"6"]])


HORSE = '"yellow horse"=>"moaned"'


@with_extensions
def test_s_002_11_an_extension_s_type(each_database: Database, tmp_path: Path) -> None:
    each_database.run("CREATE EXTENSION hstore")
    described_before_the_relation(each_database, tmp_path, "public.hstore")


def test_s_002_11_a_type_of_a_schema_of_its_own(each_database: Database, tmp_path: Path) -> None:
    each_database.run(*type_of_its_own("apart"))
    described_before_the_relation(each_database, tmp_path, "apart.label")


def described_before_the_relation(database: Database, spool: Path, type_: str) -> None:
    """The type's message precedes the relation's; its values are text here."""
    database.run(
        f"CREATE TABLE t (id int PRIMARY KEY, h {type_})", "CREATE PUBLICATION pub FOR TABLE t"
    )
    found = streamed(database, spool, "pub", f"INSERT INTO t VALUES (1, '{HORSE}')")
    [described] = [each for each in found if isinstance(each, Type)]
    assert f"{described.nspname}.{described.typname}" == type_
    assert kinds(found).index("Type") < kinds(found).index("Relation")
    assert inserted(found) == [[b"1", HORSE.encode()]]
    with closing(connect(database.dsn, "versions")) as conn:
        remote = fetch_remote_table_info(conn, "public", "t", ["pub"])
    lake = lake_columns(remote, TableOptions(), LakeIdent("public", "t"))
    assert [column.type for column in lake] == [pa.int32(), pa.string()]


def test_the_protocol_is_the_newest_that_it_speaks(each_database: Database) -> None:
    """H-27."""
    sub = Subscription("mysub", each_database.dsn, ("pub",))
    spoken = {14: "2", 15: "3"}.get(version(each_database), "4")
    assert start_options(sub, version(each_database)) == {
        "proto_version": spoken,
        "streaming": "on",
        "publication_names": '"pub"',
    }
    each_database.run("CREATE PUBLICATION pub")
    with closing(connect(each_database.dsn, each_database.name)) as conn:
        start = conn.create_slot(each_database.name, temporary=True, snapshot="nothing")
        newer = {**start_options(sub, version(each_database)), "proto_version": f"{spoken}0"}
        with pytest.raises(ReplicationError, match=f"protocol {spoken} or lower"):
            conn.start_streaming(each_database.name, start, newer)


def test_014_values_in_binary_form(each_database: Database, tmp_path: Path) -> None:
    each_database.run(
        "CREATE TABLE t (id int PRIMARY KEY, v text, a aclitem)",
        "CREATE PUBLICATION pub FOR TABLE t",
    )
    grant = "postgres=r/postgres"
    found = streamed(
        each_database, tmp_path, "pub", f"INSERT INTO t VALUES (1, 'a', '{grant}')", binary=True
    )
    assert inserted(found) == [[b"\0\0\0\1", b"a", grant.encode()]]
    [new] = [each.new for each in found if isinstance(each, Insert)]
    assert [column.status for column in new] == [
        *(ColumnStatus.BINARY, ColumnStatus.BINARY, ColumnStatus.TEXT)
    ]


INT4, INT8, TEXT, DATE, UUID, INET = 23, 20, 25, 1082, 2950, 869


@since_16
def test_014_the_types_of_what_is_published(each_database: Database) -> None:
    """No type of what is not, of a dropped column, of a view; and no lock is waited for."""
    each_database.run(
        "CREATE TYPE mood AS ENUM ('sad')",
        "CREATE TABLE single (id int PRIMARY KEY, gone point, d date, hidden text)",
        "ALTER TABLE single DROP gone",
        "CREATE TABLE parent (id bigint, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf PARTITION OF parent FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE other (m mood, i inet GENERATED ALWAYS AS (NULL::inet) STORED)",
        "CREATE SCHEMA whole",
        "CREATE VIEW whole.seen AS SELECT box '(1,1),(0,0)' AS b",
        "CREATE PUBLICATION one FOR TABLE single (id, d) WHERE (id > 5)",
        "CREATE PUBLICATION parts FOR TABLE leaf, parent",
        "CREATE PUBLICATION schemas FOR TABLES IN SCHEMA whole",
        "CREATE PUBLICATION nothing",
        "CREATE PUBLICATION everything FOR ALL TABLES",
        "CREATE TABLE whole.later (id int, u uuid)",
    )
    mood = each_database.value("SELECT 'mood'::regtype::oid::int")
    with (
        each_database.connect() as holder,
        closing(connect(each_database.dsn, "types")) as conn,
        holder.transaction(),
    ):
        holder.execute("LOCK TABLE single, whole.later IN ACCESS EXCLUSIVE MODE")
        conn.exec("SELECT pg_catalog.set_config('lock_timeout', '5s', false)")

        def types(*publications: str) -> set[int]:
            return fetch_published_types(conn, publications)

        assert types("one") == {INT4, DATE, TEXT}
        assert types("parts") == {INT8, TEXT}
        assert types("schemas") == {INT4, UUID}
        assert types("one", "schemas", "it's not there") == {INT4, DATE, TEXT, UUID}
        assert types("nothing") == set()
        assert types("everything") == {INT4, DATE, TEXT, INT8, mood, INET, UUID}


def test_a_failover_slot(each_database: Database) -> None:
    name = each_database.name
    with closing(connect(each_database.dsn, name)) as conn:
        if version(each_database) < 17:
            with pytest.raises(ReplicationError) as refused:
                conn.create_slot(name, temporary=False, snapshot="nothing", failover=True)
            # A syntax error in 14; an option that 15 and 16 do not know.
            assert refused.value.code == ("42601" if version(each_database) == 14 else "XX000")
            return
        conn.create_slot(name, temporary=False, snapshot="nothing", failover=True)
    failover = "SELECT failover FROM pg_replication_slots WHERE slot_name = %s"
    assert each_database.value(failover, (name,)) is True


def test_copy_tasks_share_the_slot_s_snapshot(each_database: Database) -> None:
    each_database.run("CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)")
    with closing(connect(each_database.dsn, each_database.name)) as conn:
        create_sync_slot(conn, each_database.name)
        each_database.run("INSERT INTO t VALUES (2)")
        [[snapshot]] = conn.exec("SELECT pg_catalog.pg_export_snapshot()")
        with closing(connect(each_database.dsn, "task", replication=False)) as task:
            task.command("BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ")
            task.command(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
            assert task.exec("SELECT id FROM public.t") == [("1",)]
