"""Binary form against text: what a real server sends both ways must be the same values."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
import pytest
from psycopg import pq

from catalog.errcodes import FeatureNotSupported
from catalog.pg_lsn import LSN
from catalog.pg_subscription import TableOptions
from tests.fix_publisher import Database, requested_publisher
from tests.servers import every_version
from tests.workers.columnar.built_in import built_in_types
from tests.workers.columnar.test_server import OPTIONS, drain_to, relation
from workers.columnar.binary.containers import RECORD
from workers.columnar.binary.forms import TEXT_ONLY, compile_forms, form_of
from workers.columnar.column_reader import Changes, Layout, MappedColumn, in_form
from workers.columnar.fold.by_key import fold_keyed
from workers.columnar.frame import Frame, frame
from workers.columnar.kernel import DIGEST
from workers.columnar.tuples import be16, be32
from workers.lake.copy_task import BINARY, CSV, CopyReader, CopyTask, read_copy
from workers.lake.table import LakeColumn, LakeIdent
from workers.publisher.binary_columns import BinaryForms, copy_forms, fetch_type_rows, known_forms
from workers.publisher.copy_statement import copy_statement
from workers.publisher.remote_table import fetch_remote_table_info
from workers.tables.new_table import lake_columns

SETUP = [
    "CREATE TYPE mood AS ENUM ('sad', 'quite \"happy\"', 'NULL')",
    "CREATE DOMAIN positive AS numeric(8,2) CHECK (VALUE > 0)",
    "CREATE DOMAIN pairs AS int[]",
    "CREATE TYPE floats AS RANGE (subtype = float8)",
    'CREATE TYPE address AS (street text, "no" int, tags text[], during tstzrange)',
]

TYPES: dict[str, list[str]] = {
    "boolean": ["true", "false"],
    "smallint": ["-32768", "32767", "0"],
    "integer": ["-2147483648", "2147483647", "-1", "100"],
    "bigint": ["-9223372036854775808", "9223372036854775807", "-10000000000", "9"],
    "real": ["'NaN'", "'-Infinity'", "3.4028235e38", "1e-45", "-0", "123456", "1e6", "0.0001"],
    "double precision": ["'NaN'", "'Infinity'", "1.7976931348623157e308", "5e-324", "-0.1",
                         "1e15", "123456789012345", "2 ^ (-44)::float8", "1e-5"],
    "numeric": ["'NaN'", "'Infinity'", "'-Infinity'", "0", "0.000", "-0.00001", "1e131",
                "1e-131", "10000", "99990000.00010002", "-12345678901234567890.5"],
    "numeric(12,2)": ["1234567890.12", "-0.5", "7", "'NaN'"],
    "numeric(38,10)": ["-1234567890123456789012345678.0123456789", "0"],
    "numeric(5,-2)": ["1234567", "'NaN'"],
    "text": ["''", "'Größe 𝄞 ''q'' \\'", "repeat('long ', 2000)"],
    "varchar(9)": ["'ab'", "''"],
    "char(5)": ["'ab'", "''"],
    '"char"': ["'x'", "''", "'\\377'"],
    "name": ["'some name'"],
    "json": ["'{\"a\" : 1}'"],
    "jsonb": ["'{\"a\" : [1, null]}'", "'\"é\"'"],
    "jsonpath": ["'$.a[*] ? (@ > 1)'"],
    "bytea": ["''", "'\\x00ff5c27'"],
    "date": ["'infinity'", "'-infinity'", "'0044-03-15 BC'", "'0001-12-31 BC'", "'0001-01-01'",
             "'9999-12-31'", "'2024-02-29'", "'5874897-12-31'", "'4714-11-24 BC'", "'1900-03-01'"],
    "timestamp": ["'infinity'", "'-infinity'", "'0044-03-15 12:00 BC'",
                  "'294276-12-31 23:59:59.999999'",
                  "'1969-12-31 23:59:59.999999'", "'2024-01-01'", "'1999-12-31 23:59:59.5'",
                  "'4714-11-24 00:00:00 BC'"],
    "timestamptz": ["'infinity'", "'-infinity'", "'0044-03-15 12:00+00 BC'",
                    "'1890-05-05 12:00:00.100+00:19:32'", "'2024-07-01 12:00+02'"],
    "time": ["'00:00'", "'24:00'", "'23:59:59.000001'"],
    "timetz": ["'12:00+00'", "'12:00:01.5-03:30'", "'00:00+15:59:59'", "'24:00-15:59'"],
    "interval": ["'0'", "'1 year 2 mons -3 days 04:05:06.7'", "'-1 year 2 mons'", "'-1 mon'",
                 "'-00:00:00.000001'", "'1 day -1 hour'", "'-1 day 1 hour'", "'178000000 years'",
                 "'-13 mons 1 day'", "'2562047788:00:54.775807'", "'1 mon'"],
    "uuid": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"],
    "oid": ["4294967295", "0"],
    "xid": ["'7'"],
    "cid": ["'8'"],
    "xid8": ["'18446744073709551615'"],
    "tid": ["'(4294967295,65535)'"],
    "pg_lsn": ["'0/0'", "'16/B374D848'"],
    "inet": ["'10.1.2.3'", "'10.1.2.3/8'", "'::'", "'::1'", "'::1.2.3.4'", "'::ffff:1.2.3.4/96'",
             "'2001:db8:0:0:1:0:0:1'", "'1:0:2:0:3:0:4:0'", "'2001:db8::/32'", "'1:0:0:2:0:0:0:3'",
             "'::2:3'", "'::ffff:0:1'", "'ffff::'"],
    "cidr": ["'10.0.0.0/8'", "'2001:db8::/128'", "'0.0.0.0/0'"],
    "macaddr": ["'08:00:2b:01:02:03'"],
    "macaddr8": ["'08:00:2b:01:02:03:04:ff'"],
    "bit(11)": ["'10101010111'"],
    "varbit": ["''", "'1'", "'000000001'"],
    "point": ["'(1.5,-2)'", "'(NaN,1e300)'"],
    "lseg": ["'[(1,2),(3,4)]'"],
    "path": ["'[(1,2),(3,4)]'", "'((1,2),(3,4.5))'"],
    "box": ["'(3,4),(1,2)'"],
    "polygon": ["'((1,2),(3,4),(5,6.25))'"],
    "line": ["'{1,-2,3.5}'"],
    "circle": ["'<(1,2),3.5>'"],
    "int4range": ["'empty'", "'[1,5]'", "'(,5)'", "'[1,)'", "'(,)'"],
    "numrange": ["'(1.50,2]'", "'[-1,NaN]'"],
    "tsrange": ["'[2024-01-01,2024-02-01 12:00)'", "'[-infinity,infinity]'"],
    "tstzrange": ["'[2024-01-01+00,)'"],
    "daterange": ["'[2024-01-01,2024-02-01]'"],
    "int8range": ["'[-9223372036854775808,9223372036854775806]'"],
    "floats": ["'[1.5,Infinity)'"],
    "int4multirange": ["'{}'", "'{[1,3),[5,9)}'"],
    "tsmultirange": ["'{[2024-01-01,2024-02-01)}'"],
    "integer[]": ["'{}'", "'{1,NULL,-3}'", "'{{1,2},{3,4}}'", "'[0:1]={5,6}'",
                  "'[-1:0][3:4]={{1,2},{3,4}}'", "'{{{1},{2}},{{3},{4}}}'"],
    "text[]": ["ARRAY['a,b', NULL, 'NULL', 'null', '', 'say \"hi\"', 'back\\slash', '{x}', E'a\\nb'"
               ", ' ', 'nul', 'é']",
               "ARRAY[repeat('\"\\', 3000)]"],
    "box[]": ["ARRAY['(3,4),(1,2)'::box, NULL, '(1,1),(0,0)']"],
    "timestamp[]": ["ARRAY['2024-01-01 00:00:00.5'::timestamp, 'infinity']"],
    "bytea[]": ["ARRAY['\\xdead'::bytea, NULL, '']"],
    "numeric(9,2)[]": ["ARRAY[1.5, 2]", "ARRAY['NaN'::numeric]"],
    "jsonb[]": ["ARRAY['{\"a\": \"b\"}'::jsonb]"],
    "int4range[]": ["ARRAY['[1,5)'::int4range, 'empty']"],
    "int4multirange[]": ["ARRAY['{[1,5)}'::int4multirange]"],
    "mood": ["'sad'", "'quite \"happy\"'", "'NULL'"],
    "mood[]": ["ARRAY['sad', 'quite \"happy\"', 'NULL']::mood[]"],
    "positive": ["123456.78"],
    "positive[]": ["ARRAY[1.5, 2]::positive[]"],
    "pairs": ["'{1,2}'"],
    "address": ["ROW('a (b)', NULL, ARRAY['x', 'y,z'], '[2024-01-01,)')::address",
                "ROW(E'say \"hi\"\\\\', 7, NULL, 'empty')::address",
                "ROW('', 1, '{}', NULL)::address"],
    "aclitem": ["'postgres=r/postgres'"],
}  # fmt: skip


class Asked:
    """A plain connection as the part of a walsender connection that asks questions."""

    def __init__(self, database: Database) -> None:
        self._conn = pq.PGconn.connect(
            psycopg.conninfo.make_conninfo(
                database.dsn, options=f"{OPTIONS} -c timezone=UTC", client_encoding="UTF8"
            ).encode()
        )
        self.server_version = self._conn.server_version // 10000

    def exec(self, sql: str) -> list[tuple[str | None, ...]]:
        result = self._conn.exec_(sql.encode())
        assert result.status == pq.ExecStatus.TUPLES_OK, self._conn.error_message
        values = [
            [result.get_value(row, column) for column in range(result.nfields)]
            for row in range(result.ntuples)
        ]
        return [tuple(v if v is None else v.decode() for v in row) for row in values]

    def copy_out(self, sql: str) -> Iterator[bytes]:
        result = self._conn.exec_(sql.encode())
        assert result.status == pq.ExecStatus.COPY_OUT, self._conn.error_message
        while True:
            size, data = self._conn.get_copy_data(0)
            if size < 0:
                break
            yield bytes(data)
        last = self._conn.get_result()
        assert last is None or last.status == pq.ExecStatus.COMMAND_OK


@pytest.fixture(params=every_version(16, 18, since=16))
def publisher_db(
    request: pytest.FixtureRequest, make_database: Callable[..., Database]
) -> Database:
    return make_database(requested_publisher(request), "binary")


def streams(database: Database, *statements: str) -> list[npt.NDArray[np.uint8]]:
    """The records of what the statements change, as text and in binary form."""
    database.run("CREATE PUBLICATION everything FOR ALL TABLES")
    slots = {form: f"{database.name}_{form}" for form in ("text", "binary")}
    for slot in slots.values():
        database.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    database.run(*statements)
    end = LSN.parse(database.lsn())
    found = []
    for form, slot in slots.items():
        conn = pq.PGconn.connect(
            psycopg.conninfo.make_conninfo(
                database.dsn, replication="database", options=f"{OPTIONS} -c timezone=UTC"
            ).encode()
        )
        more = ", binary 'true'" if form == "binary" else ""
        words = f"(proto_version '1', publication_names 'everything'{more})"
        result = conn.exec_(f"START_REPLICATION SLOT {slot} LOGICAL 0/0 {words}".encode())
        assert result.status == pq.ExecStatus.COPY_BOTH, conn.error_message
        try:
            found.append(drain_to(conn, end))
        finally:
            conn.finish()
    return found


def insert_all() -> tuple[str, list[str]]:
    columns = ", ".join(f"c{at} {name}" for at, name in enumerate(TYPES))
    height = max(len(values) for values in TYPES.values())
    return columns, [
        "INSERT INTO t VALUES ("
        + ", ".join(v[at] if at < len(v) else "NULL" for v in TYPES.values())
        + ")"
        for at in range(height)
    ]


def columns(changes: Changes, lake: Sequence[LakeColumn]) -> list[list[str]]:
    """Each column's values in words, which tell -0 from 0 and say nan; a misfit is NULL."""
    mapped = [MappedColumn(column.name, at, column.type) for at, column in enumerate(lake)]
    layout = Layout(len(lake), (), tuple(mapped), null_unrepresentable=True)
    table = pa.Table.from_batches(fold_keyed(changes, layout).append_batches())
    table.validate(full=True)
    return [list(map(repr, column.to_pylist())) for column in table.columns]


def compare(
    database: Database, text: npt.NDArray[np.uint8], binary: npt.NDArray[np.uint8]
) -> list[list[list[str]]]:
    """Compare what both streams of table ``t`` bring, as text and as the types of a lake table.

    What they bring, in this order.
    """
    asked, found = Asked(database), []
    by_text, by_binary = (frame(each, 0, len(each)) for each in (text, binary))
    nodes = BinaryForms(lambda oids: fetch_type_rows(asked, oids)).of(relation(by_binary))
    as_text = in_form(by_text.changes(slice(None)), None)
    as_binary = in_form(by_binary.changes(slice(None)), nodes)
    published = fetch_remote_table_info(asked, "public", "t", ["everything"])
    lake = lake_columns(published, TableOptions(), LakeIdent("public", "t"))
    for types in ([LakeColumn(column.name, pa.string()) for column in lake], lake):
        wanted, read = columns(as_text, types), columns(as_binary, types)
        for column, one, other in zip(types, wanted, read, strict=True):
            assert other == one, column
        found.append(wanted)
    return found


def binary_statuses(framed: Frame) -> str:
    """What the values of the first tuple came as."""
    pos, found = int(framed.new_off[0]) + 2, ""
    for _ in range(be16(framed.buf, pos - 2)):
        status = chr(framed.buf[pos])
        found += status
        pos += 1 + (4 + int(be32(framed.buf, pos + 1)) if status in "tb" else 0)
    return found


def test_s_014_2_every_type_in_binary_form_is_the_same_text(publisher_db: Database) -> None:
    """Every type there is a form for, and one that has none beside them."""
    columns, inserts = insert_all()
    publisher_db.run(*SETUP)
    text, binary = streams(publisher_db, f"CREATE TABLE t ({columns})", *inserts)
    assert binary_statuses(frame(binary, 0, len(binary))) == "b" * (len(TYPES) - 1) + "t"
    texts, _ = compare(publisher_db, text, binary)
    counts = [len(column) - column.count("None") for column in texts]
    assert counts == [len(values) for values in TYPES.values()]


def test_s_014_1_a_binary_copy_brings_the_same_arrow_columns(publisher_db: Database) -> None:
    """With values that a lake column cannot hold as NULL."""
    columns, inserts = insert_all()
    columns = columns.rpartition(", ")[0]
    publisher_db.run(*SETUP, f"CREATE TABLE t ({columns})")
    publisher_db.run(*(each.rpartition(", ")[0] + ")" for each in inserts))
    publisher_db.run("CREATE PUBLICATION everything FOR ALL TABLES")
    asked = Asked(publisher_db)
    remote = fetch_remote_table_info(asked, "public", "t", ["everything"])
    nodes = compile_forms(copy_forms(asked, remote))
    plain = (nodes.table.tolist(), nodes.roots.tolist())
    for kind in ("error", "text"):
        options = TableOptions(on_unrepresentable=kind)
        lake: Sequence[LakeColumn] = lake_columns(remote, options, LakeIdent("public", "t"))
        by_text = read_copy(asked.copy_out(copy_statement(remote, options=CSV)), lake, True)
        by_binary = read_copy(
            asked.copy_out(copy_statement(remote, options=BINARY)), lake, True, nodes=plain
        )
        wanted, found = pa.Table.from_batches(by_text), pa.Table.from_batches(by_binary)
        for at, column in enumerate(lake):
            assert repr(found.column(at).to_pylist()) == repr(wanted.column(at).to_pylist()), column


def test_014_any_number_has_the_server_s_own_digits(publisher_db: Database) -> None:
    chance = random.Random(14)
    rows = []
    for _ in range(3000):
        double = struct.unpack(">d", chance.randbytes(8))[0]
        single = struct.unpack(">f", chance.randbytes(4))[0]
        power = 2.0 ** chance.randrange(-1074, 1024)
        digits = chance.randrange(10 ** chance.randrange(1, 40))
        exact = f"{chance.choice(['', '-'])}{digits}e{chance.randrange(-30, 12)}"
        micros = chance.randrange(-63113904000000000, 252455615999999999)
        parts = [chance.randrange(-(10**n), 10**n) for n in (4, 4, 14)]
        rows.append(
            f"('{double!r}', '{single!r}', '{power!r}', '{exact}',"
            f" timestamp '2000-01-01' + interval '{micros} microseconds',"
            f" interval '{parts[0]} months {parts[1]} days {parts[2]} microseconds')"
        )
    create = "CREATE TABLE t (d float8, s float4, p float8, n numeric, at timestamp, i interval)"
    text, binary = streams(publisher_db, create, f"INSERT INTO t VALUES {', '.join(rows)}")
    assert set(binary_statuses(frame(binary, 0, len(binary)))) == {"b"}
    texts, _ = compare(publisher_db, text, binary)
    assert [len(column) - column.count("None") for column in texts] == [3000] * 6


def test_forms_are_those_of_the_server_s_own_types(publisher_db: Database) -> None:
    """Built-in OIDs, arrays and functions, as pg_type has them."""
    rows = {
        int(row[0] or 0): row[1:]
        for row in Asked(publisher_db).exec(
            "SELECT t.oid, t.typname, o.prosrc, s.prosrc, t.typarray, r.rngsubtype,"
            " r.rngmultitypid, m.typarray FROM pg_type t JOIN pg_proc o ON o.oid = t.typoutput"
            " JOIN pg_proc s ON s.oid = t.typsend LEFT JOIN pg_range r ON r.rngtypid = t.oid"
            " LEFT JOIN pg_type m ON m.oid = r.rngmultitypid WHERE t.oid < 16384"
        )
    }
    for name, oid, how in built_in_types():
        typname, output, send, array, bounds, multirange, multirange_array = rows[oid]
        assert typname == name
        form = form_of(oid, {})
        assert form is not None
        of_array = form_of(int(array or 0), {})
        assert of_array is not None
        assert of_array.parts == (form,)
        if isinstance(how, int):
            assert str(how) == bounds
            of_many = form_of(int(multirange or 0), {})
            of_many_array = form_of(int(multirange_array or 0), {})
            assert of_many is not None
            assert of_many.parts == (form,)
            assert of_many_array is not None
            assert of_many_array.parts == (of_many,)
        else:
            assert how == (form.kind, output, send)


def test_s_014_6_types_whose_form_is_unknown_are_named(publisher_db: Database) -> None:
    """Known when the table is opened, and read once their functions are known ones."""
    publisher_db.run(
        "CREATE TYPE inner_row AS (a int)",
        "CREATE TYPE outer_row AS (a inner_row)",
        "CREATE TYPE shout",
        "CREATE FUNCTION shout_in(cstring, oid, integer) RETURNS shout LANGUAGE internal"
        " IMMUTABLE PARALLEL SAFE STRICT AS 'varcharin'",
        "CREATE FUNCTION shout_out(shout) RETURNS cstring LANGUAGE internal"
        " IMMUTABLE PARALLEL SAFE STRICT AS 'varcharout'",
        "CREATE TYPE shout (input = shout_in, output = shout_out, like = text)",
        "CREATE TABLE t (id int, words tsvector, price money, o outer_row, c inner_row[],"
        ' r regclass, "not" inner_row, s shout)',
        "CREATE PUBLICATION everything FOR ALL TABLES",
    )
    asked = Asked(publisher_db)
    remote = fetch_remote_table_info(asked, "public", "t", ["everything"])
    with pytest.raises(FeatureNotSupported) as caught:
        copy_forms(asked, remote)
    assert '"words", "price", "o", "c", "r".' in str(caught.value.detail)
    assert "Set binary = false" in str(caught.value.hint)
    assert known_forms(asked, remote) is None
    publisher_db.run("ALTER TABLE t DROP words, DROP price, DROP o, DROP c, DROP r")
    remote = fetch_remote_table_info(asked, "public", "t", ["everything"])
    _, row, shout = copy_forms(asked, remote)
    assert row.kind == RECORD
    assert shout == TEXT_ONLY
    assert known_forms(asked, remote) is None
    publisher_db.run(
        "CREATE FUNCTION shout_send(shout) RETURNS bytea LANGUAGE internal"
        " IMMUTABLE PARALLEL SAFE STRICT AS 'varcharsend'",
        "ALTER TYPE shout SET (send = shout_send)",
    )
    assert copy_forms(asked, remote)[2] == form_of(1043, {})
    assert known_forms(asked, remote) == copy_forms(asked, remote)


def test_014_a_task_copies_its_range_in_either_form(publisher_db: Database) -> None:
    """As an executor does it that has the kernels, and as one that has not."""
    publisher_db.run("CREATE TABLE t (id int, n numeric(9,2))", "INSERT INTO t VALUES (1, 2.5)")
    nodes = compile_forms([form_of(23, {}), form_of(1700, {})])
    reader = CopyReader([("id", pa.int32()), ("n", pa.decimal128(9, 2))], relation="public.t")
    with publisher_db.connect() as conn, conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        exported = conn.execute("SELECT pg_export_snapshot()").fetchone()
        assert exported is not None
        task = CopyTask(
            publisher_db.dsn,
            None,
            exported[0],
            [f"COPY public.t TO STDOUT {BINARY}"],
            1,
            reader,
            (nodes.table.tolist(), nodes.roots.tolist()),
            DIGEST,
        )
        number = pa.RecordBatch.from_arrays([pa.array([0])], ["id"])
        for sent in (
            task,
            replace(task, kernels="others"),
            replace(task, nodes=None, statements=[f"COPY public.t TO STDOUT {CSV}"]),
            replace(task, nodes=None, kernels="", statements=[f"COPY public.t TO STDOUT {CSV}"]),
        ):
            [batch] = sent([number])
            assert batch.to_pylist() == [{"c0": 1, "c1": Decimal("2.50")}]
