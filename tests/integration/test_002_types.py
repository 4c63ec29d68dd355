"""PostgreSQL's 002_types: each type through copy, insert, update and delete.

S-002-11's hstore takes other servers than those of the wheel, which have none; on 18 a type of a
schema of its own, by functions of C as an extension's, stands in for it. What the messages of both
look like is in `test_publisher_versions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import requested_publisher, type_of_its_own
from tests.harness import Pgsub
from tests.integration.flow import Flow
from tests.twin import NativeTwin

TYPES = (
    "CREATE TYPE tst_comp_basic_t AS (a float, b text, c int)",
    "CREATE TYPE tst_enum_t AS ENUM ('a', 'b', 'c', 'd', 'e')",
    "CREATE TYPE tst_comp_enum_t AS (a float, b tst_enum_t, c int)",
    "CREATE TYPE tst_comp_enum_array_t AS (a float, b tst_enum_t[], c int)",
    "CREATE FUNCTION positive(value int) RETURNS boolean LANGUAGE sql IMMUTABLE"
    " AS 'SELECT value > 0'",
    "CREATE DOMAIN tst_dom_constr AS int CHECK (positive(value))",
    "CREATE DOMAIN tst_dom_price AS numeric(10,2)",
    *type_of_its_own("apart"),
)

# table → (columns, rows copied, rows inserted, an update, a delete)
TABLES: dict[str, tuple[str, str, str, str, str]] = {
    "tst_one_array": (
        "a int PRIMARY KEY, b int[]",
        "(1, '{1, 2, 3}'), (2, '{2, 3, 1}')",
        "(3, '{3, 2, 1}'), (4, '{4, 3, 2}'), (5, '{5, NULL, 3}')",
        "b = '{4, 5, 6}' WHERE a = 1",
        "a = 4",
    ),
    "tst_arrays": (
        "a int[] PRIMARY KEY, b text[], c float[], d interval[]",
        "('{1, 2, 3}', '{\"a\", \"b\", \"c\"}', '{1.1, 2.2, 3.3}',"
        " '{\"1 day\", \"2 days\", \"3 days\"}')",
        "('{5, NULL, 3}', '{\"c\", NULL, \"d e\"}', '{3.3, 1.1, NULL}', '{\"3 years\", NULL}'),"
        " ('{7}', '{}', NULL, NULL)",
        "b = '{\"1a\", \"2b\", \"3c\"}', c = '{1.0, 2.0, 3.0}' WHERE a = '{1, 2, 3}'",
        "a = '{7}'",
    ),
    "tst_one_enum": (
        "a int PRIMARY KEY, b tst_enum_t",
        "(1, 'a'), (2, 'b')",
        "(3, 'c'), (4, 'd'), (5, NULL)",
        "b = 'c' WHERE a = 1",
        "a = 4",
    ),
    "tst_enums": (
        "a tst_enum_t PRIMARY KEY, b tst_enum_t[]",
        "('a', '{b, c}'), ('b', '{c, a}')",
        "('c', '{b, a}'), ('d', '{c, b}'), ('e', '{d, NULL}')",
        "b = '{e, NULL}' WHERE a = 'a'",
        "a = 'd'",
    ),
    "tst_one_comp": (
        "a int PRIMARY KEY, b tst_comp_basic_t",
        "(1, ROW(1.0, 'a', 1)), (2, ROW(2.0, 'b', 2))",
        "(3, ROW(3.0, 'c, \"d', 3)), (4, ROW(4.0, 'd', 4)), (5, ROW(NULL, NULL, 5))",
        "b = ROW(10.0, 'A', 10) WHERE a = 1",
        "a = 4",
    ),
    "tst_comps": (
        "a tst_comp_basic_t PRIMARY KEY, b tst_comp_basic_t[]",
        "(ROW(1.0, 'a', 1), ARRAY[ROW(1, 'a', 1)::tst_comp_basic_t])",
        "(ROW(3.0, 'c', 3), ARRAY[ROW(3, 'c', 3)::tst_comp_basic_t]),"
        " (ROW(4.0, 'd', 3), ARRAY[ROW(4, 'd', 3)::tst_comp_basic_t]),"
        " (ROW(5.0, 'e', NULL), ARRAY[NULL, ROW(5, NULL, 5)::tst_comp_basic_t])",
        "b = ARRAY[ROW(9, 'x', -1)::tst_comp_basic_t] WHERE (a).a = 1.0",
        "(a).a = 4.0",
    ),
    "tst_comp_enum": (
        "a int PRIMARY KEY, b tst_comp_enum_t",
        "(1, ROW(1.0, 'a', 1)), (2, ROW(2.0, 'b', 2))",
        "(3, ROW(3.0, 'c', 3)), (4, ROW(4.0, 'd', 3)), (5, ROW(NULL, 'e', 5))",
        "b = ROW(1.0, NULL, NULL) WHERE a = 1",
        "a = 4",
    ),
    "tst_comp_enum_array": (
        "a tst_comp_enum_t PRIMARY KEY, b tst_comp_enum_array_t[]",
        "(ROW(1.0, 'a', 1), ARRAY[ROW(1, '{a, b}', 1)::tst_comp_enum_array_t])",
        "(ROW(3.0, 'c', 3), ARRAY[ROW(3, '{c, NULL}', 3)::tst_comp_enum_array_t]),"
        " (ROW(4.0, 'd', 3), ARRAY[NULL]::tst_comp_enum_array_t[])",
        "b = ARRAY[ROW(9, '{e}', -1)::tst_comp_enum_array_t] WHERE (a).a = 1.0",
        "(a).a = 4.0",
    ),
    "tst_range": (
        "a int PRIMARY KEY, b int4range",
        "(1, '[1, 10]'), (2, '[2, 1000]')",
        "(3, '[3,50]'), (4, '[4,8]'), (5, 'empty')",
        "b = '(1, 90)' WHERE a = 1",
        "a = 4",
    ),
    "tst_range_array": (
        "a int PRIMARY KEY, b tstzrange, c int8range[]",
        "(1, tstzrange('2014-08-04 00:00:00+02', 'infinity'), '{\"[1,2]\", \"[10,20]\"}')",
        "(2, tstzrange('2014-08-02 01:00:00+02', NULL, '[]'), '{\"[2,3]\", NULL}'),"
        " (3, NULL, NULL)",
        "c = '{\"[100, 1001]\"}' WHERE a = 1",
        "a = 3",
    ),
    "tst_dom": (
        "a tst_dom_constr PRIMARY KEY, b tst_dom_price",
        "(10, 1.10), (20, NULL)",
        "(11, 99999999.99), (12, -0.01)",
        "b = 12.3 WHERE a = 10",
        "a = 12",
    ),
    "tst_apart": (
        "a int PRIMARY KEY, b apart.label, c apart.label[]",
        "(1, 'one', '{x, NULL}'), (2, 'two, \"2\"', NULL)",
        "(3, 'yellow horse', '{\"moaned, {}\", \"\"}'), (4, '', '{}'), (5, NULL, NULL)",
        "b = 'also', c = '{updated}' WHERE a IN (1, 2)",
        "a = 4",
    ),
    "tst_numbers": (
        "a bigint PRIMARY KEY, b smallint, c real, d double precision, e numeric(38, 10),"
        " f numeric, g boolean",
        "(-9223372036854775808, -32768, 1.1, 1e300, 1234567890123456789012345678.0123456789,"
        " 1.50, true), (0, 0, '-0', '-0', 0, 'NaN', false)",
        "(9223372036854775807, 32767, 'NaN', 'Infinity', -0.0000000001, 1e100, NULL),"
        " (1, NULL, NULL, NULL, NULL, NULL, NULL),"
        " (2, 1, '-Infinity', 5e-324, 1, 'Infinity', true)",
        "c = 3.4028235e38, d = -1e15, f = 0.000001 WHERE a = 0",
        "a = 1",
    ),
    "tst_texts": (
        "a varchar(20) PRIMARY KEY, b char(5), c name, d uuid, e json, f jsonb, g bytea, h text",
        "('ä', 'x', 'n', '00000000-0000-0000-0000-000000000001', '{\"a\":  1}',"
        " '{\"b\":  [1, null]}', '\\x00ff', E'line\\nbreak,\"quote\"\\\\back')",
        "('', '', '', NULL, 'null', '\"\"', '', ''), ('\U0001f418', NULL, NULL, NULL, NULL, NULL,"
        " NULL, NULL)",
        "h = E'\\t\\\\N', g = '\\xdeadbeef' WHERE a = 'ä'",
        "a = '\U0001f418'",
    ),
    "tst_times": (
        "a date PRIMARY KEY, b timestamp, c timestamptz, d time, e timetz, f interval,"
        " g timestamptz[], h date[]",
        "('2020-02-29', '2020-02-29 12:34:56.789012', '2020-02-29 12:34:56.789012+05:30',"
        " '23:59:59', '12:00:00+02', '1 year 2 mons -3 days',"
        " '{\"2020-02-29 00:00:00+02\"}', '{2020-01-01}')",
        "('0001-01-01', '0001-01-01', '0001-01-02 00:00:00+00', '24:00:00', '00:00:00-12', '0',"
        " '{}', '{NULL}'), ('9999-12-31', '9999-12-31 23:59:59.999999', '9999-12-31 00:00:00+00',"
        " NULL, NULL, NULL, NULL, NULL), ('1969-12-31', '1969-12-31 23:59:59.999999',"
        " '1969-12-31 23:59:59.999999+00', NULL, NULL, NULL, NULL, NULL)",
        "b = '1900-01-01 00:00:00.000001', c = '1883-11-18 00:00:00+00' WHERE a = '2020-02-29'",
        "a = '9999-12-31'",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "t002")
    flow.both(*TYPES)
    flow.both(*(f"CREATE TABLE {table} ({spec[0]})" for table, spec in TABLES.items()))
    flow.pub.run(
        *(f"INSERT INTO {table} VALUES {spec[1]}" for table, spec in TABLES.items()),
        "CREATE PUBLICATION tap_pub FOR ALL TABLES",
    )
    flow.subscribe("tap_sub", ["tap_pub"])
    flow.checkpoint("copy", *TABLES)
    flow.pub.run(*(f"INSERT INTO {table} VALUES {spec[2]}" for table, spec in TABLES.items()))
    flow.checkpoint("insert", *TABLES)
    flow.pub.run(*(f"UPDATE {table} SET {spec[3]}" for table, spec in TABLES.items()))
    flow.checkpoint("update", *TABLES)
    flow.pub.run(*(f"DELETE FROM {table} WHERE {spec[4]}" for table, spec in TABLES.items()))
    flow.checkpoint("delete", *TABLES)
    return flow


MATRIX = [pytest.mark.matrix, pytest.mark.matrix_only]
every_phase = pytest.mark.parametrize("label", ["copy", "insert", "update", "delete"])


def assert_as_natively(flow: Flow, label: str, table: str) -> None:
    native, ours = flow.recorded[label, table]
    assert repr(ours) == repr(native)  # NaN equals NaN, -0 differs from 0


@every_phase
@pytest.mark.parametrize("table", TABLES)
def test_every_type_is_what_the_native_subscriber_has(flow: Flow, table: str, label: str) -> None:
    assert_as_natively(flow, label, table)


def test_s_002_1_an_array_with_a_null_element(flow: Flow) -> None:
    assert (5, [5, None, 3]) in flow.same("insert", "tst_one_array")


@every_phase
def test_s_002_2_an_array_as_key_and_arrays_of_other_types(flow: Flow, label: str) -> None:
    assert_as_natively(flow, label, "tst_arrays")


@every_phase
def test_s_002_3_an_enum(flow: Flow, label: str) -> None:
    assert_as_natively(flow, label, "tst_one_enum")


@every_phase
def test_s_002_4_an_enum_as_key_and_an_array_of_enums(flow: Flow, label: str) -> None:
    assert_as_natively(flow, label, "tst_enums")


@every_phase
def test_s_002_5_a_composite(flow: Flow, label: str) -> None:
    assert_as_natively(flow, label, "tst_one_comp")


@every_phase
def test_s_002_6_a_composite_as_key_and_an_array_of_composites(flow: Flow, label: str) -> None:
    assert_as_natively(flow, label, "tst_comps")


@every_phase
@pytest.mark.parametrize("table", ["tst_comp_enum", "tst_comp_enum_array"])
def test_s_002_7_composites_that_hold_enums(flow: Flow, table: str, label: str) -> None:
    assert_as_natively(flow, label, table)


def test_s_002_9_a_range_is_in_canonical_form(flow: Flow) -> None:
    assert (1, "[1,11)") in flow.same("copy", "tst_range")
    assert (1, "[2,90)") in flow.same("update", "tst_range")


@every_phase
def test_s_002_10_ranges_without_end_and_arrays_of_ranges(flow: Flow, label: str) -> None:
    assert_as_natively(flow, label, "tst_range_array")


@pytest.fixture(scope="module", params=[pytest.param(17, id="pg17", marks=MATRIX)])
def extended(request: pytest.FixtureRequest, pgsub: Pgsub) -> Iterator[Flow]:
    """A type of an extension, that both a publisher and a twin of one version have."""
    twin = NativeTwin(request.param)
    with twin.server:
        flow = Flow(pgsub, twin, requested_publisher(request), "t002_hstore")
        flow.both(
            "CREATE EXTENSION hstore", "CREATE TABLE tst_hstore (a int PRIMARY KEY, b hstore)"
        )
        flow.pub.run(
            """INSERT INTO tst_hstore VALUES (1, '"a"=>"1"'), (2, '"zzz"=>"foo"'), (3, NULL)""",
            "CREATE PUBLICATION pub FOR TABLE tst_hstore",
        )
        flow.subscribe("sub", ["pub"])
        flow.checkpoint("copy", "tst_hstore")
        flow.pub.run(
            """INSERT INTO tst_hstore VALUES (4, '"yellow horse"=>"moaned", "x"=>NULL'), (5, '')"""
        )
        flow.checkpoint("insert", "tst_hstore")
        flow.pub.run("""UPDATE tst_hstore SET b = '"also"=>"updated"' WHERE a IN (2, 3)""")
        flow.checkpoint("update", "tst_hstore")
        flow.pub.run("DELETE FROM tst_hstore WHERE a = 1")
        flow.checkpoint("delete", "tst_hstore")
        yield flow
        flow.close()


@every_phase
def test_s_002_11_a_type_of_a_schema_of_its_own(flow: Flow, label: str) -> None:
    assert_as_natively(flow, label, "tst_apart")
    assert (1, "also", ["updated"]) in flow.same("delete", "tst_apart")


@every_phase
def test_s_002_11_an_extension_s_type(extended: Flow, label: str) -> None:
    assert_as_natively(extended, label, "tst_hstore")
    assert len(extended.same("delete", "tst_hstore")) == 4


def test_s_002_12_a_domain_is_its_base_type(flow: Flow) -> None:
    assert sum(row[0] for row in flow.same("delete", "tst_dom")) == 41
