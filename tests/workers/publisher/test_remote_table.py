"""One published table: columns, types, key, filters and leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.errcodes import UndefinedObject
from tests.workers.publisher.scripted import ScriptedPublisher, answers, table
from workers.publisher.interfaces import Row
from workers.publisher.remote_table import (
    ColumnType,
    Leaf,
    can_lock,
    fetch_delimiters,
    fetch_leaves,
    fetch_remote_table_info,
)


def test_domains_and_arrays_are_resolved() -> None:
    remote = fetch_remote_table_info(
        ScriptedPublisher(18, answers()), "public", "table_1", ["p", "q"]
    )
    assert [column.name for column in remote.columns] == ["id", "d", "a"]
    assert [column.in_key for column in remote.columns] == [True, False, False]
    assert remote.columns[2].generated
    # A domain over a domain: the modifier is the innermost's.
    assert remote.columns[1].type == ColumnType(1700, 655366, "pg_catalog", "numeric", "b")
    array = remote.columns[2].type
    assert array.typname == "_money2"
    assert array.element == ColumnType(1700, 655366, "pg_catalog", "numeric", "b")
    assert remote.row_filters == ("(d < 1)", "(id > 5)")
    assert not remote.publishes_everything
    assert remote.fingerprint.startswith("iu-t- OR (d < 1) OR (id > 5) @")


def test_the_delimiter_of_an_array_is_that_of_its_elements() -> None:
    """A domain has a delimiter, which counts in an array of the domain."""
    types: list[Row] = [
        ("23", "pg_catalog", "int4", "b", "0", "-1", "0", ","),
        ("20000", "public", "shape", "b", "0", "-1", "0", "|"),
        ("20001", "public", "framed", "d", "20000", "-1", "0", ":"),
        ("20002", "public", "_framed", "b", "0", "-1", "20001", ":"),
    ]
    conn = ScriptedPublisher(18, answers() | {"pg_type": types})
    _, domain, array = (
        column.type for column in fetch_remote_table_info(conn, "public", "table_1", ["p"]).columns
    )
    assert (domain.typname, domain.delimiter) == ("shape", ":")
    assert array.element is not None
    assert (array.element.typname, array.element.delimiter) == ("shape", ":")
    assert fetch_delimiters(conn, {23, 20001, 20002, 29999}) == {20002: ":"}


@pytest.mark.parametrize(
    ("flags", "identity", "key"), [("tf", 1, ("id",)), ("tf", 2, ()), ("tt", 2, ("id", 'na"me'))]
)
def test_a_part_of_the_replica_identity_is_no_key(
    flags: str, identity: int, key: tuple[str, ...]
) -> None:
    columns = zip(table().columns, flags, strict=True)
    flagged = tuple(replace(column, in_key=flag == "t") for column, flag in columns)
    assert table(columns=flagged, identity=identity).key == key


def test_columns_of_the_identity_that_are_not_published_count() -> None:
    script = answers()
    script["pg_attribute"] = [(*row[:-1], "2") for row in script["pg_attribute"]]
    remote = fetch_remote_table_info(ScriptedPublisher(17, script), "public", "table_1", ["p"])
    assert (remote.identity, remote.key) == (2, ())


def test_a_partitioned_table_is_never_trusted() -> None:
    whole: list[Row] = [("public", "table_1", "t", "t", "t", "t", "t", None, "1/1", "0", "7")]
    for kind, trusted in (("r", True), ("p", False)):
        listed: dict[str, list[Row]] = {
            "INNER JOIN": [("16389", "d", kind, "0")],
            "pubinsert": whole,
        }
        conn = ScriptedPublisher(18, answers() | listed)
        remote = fetch_remote_table_info(conn, "public", "table_1", ["p"])
        assert remote.publishes_everything is trusted


def test_one_unfiltered_publication_means_every_row() -> None:
    conn = ScriptedPublisher(18, {**answers(), "pg_get_expr": [("(id > 5)",), (None,)]})
    assert fetch_remote_table_info(conn, "public", "table_1", ["p"]).row_filters == ()


@pytest.mark.parametrize(
    ("version", "asks", "asks_not"),
    [
        (18, ["a.attgenerated <> ''", "pg_get_expr", "array_length"], []),
        (17, ["a.attgenerated = ''", "pg_get_expr", "array_length"], ["<> ''"]),
        (15, ["a.attgenerated = ''", "pg_get_expr", "array_length", "pubviaroot"], []),
        (14, ["a.attgenerated = ''", "pubviaroot"], ["pg_get_expr", "array_length"]),
        (12, ["a.attgenerated = ''", "pubtruncate"], ["pubviaroot", "pg_get_expr"]),
        (11, ["pubtruncate"], ["attgenerated", "pubviaroot"]),
        (10, ["pubdelete", "indnatts"], ["attgenerated", "pubtruncate", "indnkeyatts"]),
    ],
)
def test_table_info_by_version(version: int, asks: list[str], asks_not: list[str]) -> None:
    conn = ScriptedPublisher(version, answers())
    fetch_remote_table_info(conn, "public", "table_1", ["p"])
    everything = "\n".join(conn.asked)
    assert [words for words in asks if words not in everything] == []
    assert [words for words in asks_not if words in everything] == []


def test_table_not_there() -> None:
    with pytest.raises(UndefinedObject, match=r'^table "public\.a" not found on publisher$'):
        fetch_remote_table_info(ScriptedPublisher(18, {}), "public", "a", ["p"])


def test_leaves() -> None:
    conn = ScriptedPublisher(18, {"isleaf": [("5", "public", "leaf", "r")]})
    assert fetch_leaves(conn, table()) == [Leaf(16389, "public", "table_1", "r")]
    assert conn.asked == []
    assert fetch_leaves(conn, table(relkind="p")) == [Leaf(5, "public", "leaf", "r")]


def test_a_table_can_be_locked_if_every_leaf_can() -> None:
    leaves = [Leaf(n, "public", f"leaf_{n}", "r") for n in (5, 6)]
    for refused, can in (("0", True), ("1", False)):
        conn = ScriptedPublisher(18, {"has_table_privilege": [(refused,)]})
        assert can_lock(conn, leaves) is can
        assert "IN (5, 6)" in conn.asked[-1]
    assert can_lock(ScriptedPublisher(18, {}), [])
