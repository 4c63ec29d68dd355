"""What a real server sends: drained, framed, folded, and compared with the server's own rows."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
import pytest
from psycopg import pq

from catalog.pg_lsn import LSN
from tests.fix_publisher import Database
from tests.workers.columnar.records import rows
from workers.columnar.column_reader import Layout, MappedColumn
from workers.columnar.drain import Drain, DrainStatus
from workers.columnar.fold.by_key import fold_keyed
from workers.columnar.fold.whole_rows import full_images
from workers.columnar.frame import Frame, frame
from workers.proto import decode, encode
from workers.proto.messages import Relation

OPTIONS = "-c datestyle=ISO -c intervalstyle=postgres -c extra_float_digits=3"


@pytest.fixture
def database(each_database: Database) -> Database:
    return each_database


def stream(database: Database, *statements: str, timezone: str = "UTC") -> npt.NDArray[np.uint8]:
    """The records of what the statements change, as a subscriber receives them."""
    database.run("CREATE PUBLICATION everything FOR ALL TABLES")
    database.execute("SELECT pg_create_logical_replication_slot('drained', 'pgoutput')")
    database.run(*statements)
    end = LSN.parse(database.lsn())
    options = f"{OPTIONS} -c timezone={timezone}"
    conn = pq.PGconn.connect(
        psycopg.conninfo.make_conninfo(
            database.dsn, replication="database", options=options
        ).encode()
    )
    try:
        result = conn.exec_(
            b"START_REPLICATION SLOT drained LOGICAL 0/0"
            b" (proto_version '1', publication_names 'everything')"
        )
        assert result.status == pq.ExecStatus.COPY_BOTH, conn.error_message
        return drain_to(conn, end)
    finally:
        conn.finish()


def drain_to(conn: pq.abc.PGconn, end: LSN) -> npt.NDArray[np.uint8]:
    drain = Drain(getattr(conn, "pgconn_ptr"))  # noqa: B009 - the protocol class lacks it
    buf, position, received = np.zeros(1 << 16, np.uint8), 0, 0
    while received < end:
        result = drain.run(buf, position)
        position, received = result.position, max(received, result.last_received)
        if result.status == DrainStatus.FULL:
            buf = np.concatenate([buf, np.zeros(len(buf) + result.need, np.uint8)])
        elif result.status == DrainStatus.IDLE:  # ask how far the server is
            conn.put_copy_data(encode.standby_status_update(LSN(0), LSN(0), LSN(0), 0, True))
            conn.flush()
            assert select.select([conn.socket], [], [], 30)[0]
        else:
            assert result.status < DrainStatus.END, conn.error_message
    drain.close()
    return buf[:position]


def relation(framed: Frame) -> Relation:
    for control in framed.control:
        message = decode.message(
            framed.buf[control.offset : control.offset + control.length].tobytes()
        )
        if isinstance(message, Relation):
            return message
    raise AssertionError("no relation")


def layout_of(described: Relation, types: Sequence[pa.DataType]) -> Layout:
    columns = tuple(
        MappedColumn(column.name, at, type_)
        for at, (column, type_) in enumerate(zip(described.columns, types, strict=True))
    )
    full = described.replident == "f"
    key = () if full else tuple(at for at, each in enumerate(described.columns) if each.key)
    return Layout(len(columns), key, columns)


TYPES: list[tuple[str, pa.DataType, list[str]]] = [
    ("boolean", pa.bool_(), ["true", "false"]),
    ("smallint", pa.int16(), ["-32768", "32767"]),
    ("integer", pa.int32(), ["-2147483648", "0"]),
    ("bigint", pa.int64(), ["-9223372036854775808", "9223372036854775807"]),
    ("real", pa.float32(), ["1.1", "3.4028235e38", "'NaN'", "'-Infinity'"]),
    ("double precision", pa.float64(), ["0.1", "1e-320", "1.7976931348623157e308", "'Infinity'"]),
    ("numeric(12,2)", pa.decimal128(12, 2), ["1234567890.12", "-0.5", "7"]),
    ("numeric", pa.decimal128(38, 18), ["1.000000000000000001", "123456789012345.5", "-1e3"]),
    ("text", pa.string(), ["''", "'Größe 𝄞 ''quoted'' \\'", "repeat('long ', 2000)"]),
    ("char(5)", pa.string(), ["'ab'"]),
    ("bytea", pa.binary(), ["''", "'\\x00ff5c27'"]),
    ("date", pa.date32(), ["'0001-01-01'", "'9999-12-31'", "'2024-02-29'"]),
    ("timestamp", pa.timestamp("us"), ["'1969-12-31 23:59:59.999999'", "'2024-01-01'"]),
    (
        "timestamptz",
        pa.timestamp("us", "UTC"),
        ["'1890-05-05 12:00:00+00'", "'2024-07-01 12:00:00.5+00'", "'2024-10-27 00:30:00+00'"],
    ),
    ("integer[]", pa.list_(pa.int32()), ["'{}'", "'{1,NULL,-3}'"]),
    (
        "text[]",
        pa.list_(pa.string()),
        ["ARRAY['a,b', NULL, 'NULL', '', 'say \"hi\"', 'back\\slash', '{x}', E'a\\nb']"],
    ),
    ("timestamp[]", pa.list_(pa.timestamp("us")), ["ARRAY['2024-01-01 00:00:00.5'::timestamp]"]),
    ("bytea[]", pa.list_(pa.binary()), ["ARRAY['\\xdead'::bytea, NULL]"]),
    ("numeric[]", pa.list_(pa.decimal128(9, 2)), ["ARRAY[1.5, 2]"]),
]


@pytest.mark.parametrize("timezone", ["UTC", "Europe/Amsterdam", "Asia/Kathmandu"])
def test_every_type_is_read_as_the_server_holds_it(database: Database, timezone: str) -> None:
    columns = ", ".join(f'"{name}" {name}' for name, _, _ in TYPES)
    height = max(len(values) for _, _, values in TYPES)
    inserts = [
        "INSERT INTO t VALUES ("
        + ", ".join(values[at] if at < len(values) else "NULL" for _, _, values in TYPES)
        + ")"
        for at in range(height)
    ]
    buf = stream(database, f"CREATE TABLE t ({columns})", *inserts, timezone=timezone)
    framed = frame(buf, 0, len(buf))
    layout = layout_of(relation(framed), [type_ for _, type_, _ in TYPES])
    folded = fold_keyed(framed.changes(slice(None)), layout)
    found = [tuple(row.values()) for row in rows(folded.append_batches())]
    assert repr(found) == repr(normal(database.execute("SELECT * FROM t")))


def normal(table: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The server's rows in the words Arrow uses for them."""
    arrays: list[Any] = [
        pa.array([row[at] for row in table], type_) for at, (_, type_, _) in enumerate(TYPES)
    ]
    return list(zip(*(array.to_pylist() for array in arrays), strict=True))


BIG = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 300))"
"""Long and incompressible, hence out of line."""

WORK = [
    f"INSERT INTO t SELECT g, 'row ' || g, {BIG} || g FROM generate_series(1, 20) g",
    "UPDATE t SET note = 'seen' WHERE id % 2 = 0",
    "UPDATE t SET id = id + 100 WHERE id < 5",
    "UPDATE t SET id = -id WHERE id BETWEEN 6 AND 9",
    "DELETE FROM t WHERE id % 7 = 3",
    f"UPDATE t SET big = {BIG} WHERE id > 100",
    "BEGIN; UPDATE t SET id = 0 WHERE id = 10; UPDATE t SET id = 10 WHERE id = 11;"
    " UPDATE t SET id = 11 WHERE id = 0; COMMIT",
    "DELETE FROM t WHERE id = 12; INSERT INTO t VALUES (12, 'again', NULL)",
    "UPDATE t SET note = note || '!'",
]


@pytest.mark.parametrize("known", [0, 1])
def test_a_keyed_table_ends_as_the_server_has_it(database: Database, known: int) -> None:
    """``known``: how many of the statements ran before the stream began."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, note text, big text)", *WORK[:known])
    table = {row[0]: row for row in database.execute("SELECT * FROM t")}
    buf = stream(database, *WORK[known:])
    framed = frame(buf, 0, len(buf))
    layout = layout_of(relation(framed), [pa.int32(), pa.string(), pa.string()])
    folded = fold_keyed(framed.changes(slice(None)), layout)
    assert folded.conflict == -1
    assert folded.unchanged == (("big",) if known else ())
    merged = rows(folded.merge_batches())
    old = {row["b0"]: table.pop(row["b0"]) for row in merged}
    for row in merged:
        if row["op"] == 0:
            kept = old[row["b0"]][2] if row.get("m2") else row["c2"]
            table[row["c0"]] = (row["c0"], row["c1"], kept)
    for row in rows(folded.append_batches()):
        assert row["c0"] not in table
        table[row["c0"]] = tuple(row.values())
    assert sorted(table.values()) == database.execute("SELECT * FROM t ORDER BY id")


def test_a_table_matched_by_whole_rows_ends_as_the_server_has_it(database: Database) -> None:
    database.run("CREATE TABLE t (id int, note text, big text)")
    database.run(
        "ALTER TABLE t REPLICA IDENTITY FULL", WORK[0], WORK[0], "INSERT INTO t DEFAULT VALUES"
    )
    database.run("INSERT INTO t SELECT 50, 'equal', NULL FROM generate_series(1, 4)")
    table = database.execute("SELECT * FROM t")
    once = "WHERE ctid = (SELECT min(ctid) FROM t WHERE note = 'equal')"
    buf = stream(database, *WORK[1:], f"DELETE FROM t {once}", f"UPDATE t SET note = 'odd' {once}")
    framed = frame(buf, 0, len(buf))
    layout = layout_of(relation(framed), [pa.int32(), pa.string(), pa.string()])
    full = full_images(framed.changes(slice(None)), layout)
    found: list[tuple[Any, int]] = []
    for image in rows(full.image_batches()):
        values = (image["c0"], image["c1"], image["c2"])
        equal = [at for at, row in enumerate(table) if row == values]
        found += [(image["image"], at) for at in equal[: int(str(image["n"]))]]
    full.resolve([image for image, _ in found])
    places = pa.array([at for _, at in found], pa.int64())
    moved = rows(full.position_batches(pa.array(["file"] * len(found)), places))
    gone = {row["p"] for row in moved}
    after = [row for at, row in enumerate(table) if at not in gone]
    after += [(row["c0"], row["c1"], row["c2"]) for row in moved if row["op"] == 0]
    after += [tuple(row.values()) for row in rows(full.append_batches())]
    assert (full.missing_updates, full.missing_deletes) == (0, 0)
    assert sorted(after, key=repr) == sorted(database.execute("SELECT * FROM t"), key=repr)
