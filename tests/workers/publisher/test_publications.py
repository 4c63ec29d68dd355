import re
from dataclasses import replace

import pytest

from catalog.errcodes import FeatureNotSupported, ReplicationError, UndefinedObject
from workers.publisher.copy_statement import copy_statement
from workers.publisher.fingerprint import PublishedActions, fetch_fingerprints
from workers.publisher.interfaces import Row
from workers.publisher.publications import (
    fetch_table_list,
    missing_publications,
)
from workers.publisher.remote_table import (
    ColumnType,
    Leaf,
    RemoteColumn,
    RemoteTable,
    fetch_leaves,
    fetch_remote_table_info,
)

INT4 = ColumnType(23, -1, "pg_catalog", "int4", "b")


class ScriptedPublisher:
    """Answers by the words a query contains; records what it was asked."""

    def __init__(self, version: int, answers: dict[str, list[Row]]) -> None:
        self.server_version = version
        self.answers = answers
        self.asked: list[str] = []

    def exec(self, sql: str) -> list[Row]:
        self.asked.append(sql)
        found = [rows for words, rows in self.answers.items() if words in sql]
        return found[-1] if found else []


def table(**changes: object) -> RemoteTable:
    base = RemoteTable(
        nspname="public",
        relname="table_1",
        relid=16389,
        relkind="r",
        relreplident="d",
        columns=(
            RemoteColumn(1, "id", True, True, False, INT4),
            RemoteColumn(2, 'na"me', False, False, False, INT4),
        ),
        row_filters=(),
        actions=PublishedActions(True, True, True, True, False),
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # one test helper for all fields


def test_missing_publications_keep_their_order() -> None:
    conn = ScriptedPublisher(18, {"pg_publication": [("b",)]})
    assert missing_publications(conn, ["z", "b", "it's"]) == ["z", "it's"]
    assert "IN ('z', 'b', 'it''s')" in conn.asked[0]


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (19, "VARIADIC"),
        (18, "VARIADIC"),
        (16, "VARIADIC"),
        (15, "t.attnames"),
        (14, "pg_partition_ancestors"),
        (13, "pg_partition_ancestors"),
        (12, "SELECT DISTINCT t.schemaname, t.tablename\nFROM"),
        (10, "SELECT DISTINCT t.schemaname, t.tablename\nFROM"),
    ],
)
def test_table_list_by_version(version: int, words: str) -> None:
    """H-24: a leaf whose ancestor is listed too is left out by our own query up to 15."""
    conn = ScriptedPublisher(version, {"SELECT": [("public", "a", "1 2"), ("public", "b", "1")]})
    assert fetch_table_list(conn, ["p"]) == [("public", "a"), ("public", "b")]
    assert words in conn.asked[0]
    assert not re.search(r"(?<!:):[a-z]", conn.asked[0])
    assert ("attnames" in conn.asked[0]) == (version == 15)
    assert ("pg_partition_ancestors" in conn.asked[0]) == (13 <= version <= 15)


def test_different_column_lists() -> None:
    conn = ScriptedPublisher(18, {"SELECT": [("public", "a", "1 2"), ("public", "a", "1")]})
    with pytest.raises(FeatureNotSupported, match=r'column lists for table "public\.a"'):
        fetch_table_list(conn, ["p"])
    conn = ScriptedPublisher(
        18, {"pg_class c\nINNER": [("1", "d", "r")], "array_length": [(None,), ("1",)]}
    )
    with pytest.raises(FeatureNotSupported):
        fetch_remote_table_info(conn, "public", "a", ["p"])


def answers() -> dict[str, list[Row]]:
    return {
        "INNER JOIN": [("16389", "d", "r")],
        "array_length": [("1 2 4",)],
        "pg_attribute": [
            ("1", "id", "23", "-1", "t", "t", "f", "1"),
            ("2", "d", "20001", "-1", "f", None, "f", "1"),
            ("3", "left out", "23", "-1", "f", "f", "f", "1"),
            ("4", "a", "20002", "-1", "f", "f", "t", "1"),
        ],
        "pg_type": [
            ("23", "pg_catalog", "int4", "b", "0", "-1", "0"),
            ("1700", "pg_catalog", "numeric", "b", "0", "-1", "0"),
            ("20000", "public", "money2", "d", "1700", "655366", "0"),
            ("20001", "public", "money3", "d", "20000", "-1", "0"),
            ("20002", "public", "_money2", "b", "0", "-1", "20000"),
        ],
        "pg_get_expr": [("(id > 5)",), ("(d < 1)",)],
        "pubinsert": [
            ("public", "table_1", "t", "f", "f", "t", "f", "(id > 5)", "1/1"),
            ("public", "table_1", "t", "t", "f", "f", "f", "(d < 1)", "2/1"),
            ("public", "b", "t", "t", "t", "t", "t", "(id > 5)", "1/1"),
            ("public", "b", "t", "t", "t", "t", "f", None, "2/1"),
        ],
    }


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


def test_fingerprints_of_all_tables_are_those_of_each() -> None:
    conn = ScriptedPublisher(18, answers())
    each = fetch_remote_table_info(conn, "public", "table_1", ["p"]).fingerprint
    found = fetch_fingerprints(conn, ["p", "q"])
    assert found[("public", "table_1")] == each
    assert found[("public", "b")].startswith("iudtv @")


def test_a_publication_that_was_changed_back_has_another_fingerprint() -> None:
    before = fetch_fingerprints(ScriptedPublisher(18, answers()), ["p", "q"])
    changed = answers()
    changed["pubinsert"][0] = (*changed["pubinsert"][0][:-1], "1/2")
    after = fetch_fingerprints(ScriptedPublisher(18, changed), ["p", "q"])
    assert {name for name in before if before[name] != after[name]} == {("public", "table_1")}


def test_a_partitioned_table_is_never_trusted() -> None:
    whole: list[Row] = [("public", "table_1", "t", "t", "t", "t", "t", None, "1/1")]
    for kind, trusted in (("r", True), ("p", False)):
        listed: dict[str, list[Row]] = {"INNER JOIN": [("16389", "d", kind)], "pubinsert": whole}
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


PLAIN = 'COPY public.table_1 (id, "na""me") TO STDOUT (FORMAT csv)'
ONLY = 'COPY (SELECT id, "na""me" FROM ONLY public.table_1'
TAIL = ") TO STDOUT (FORMAT csv)"


def test_copy_forms() -> None:
    generated = RemoteColumn(3, "g", False, False, True, INT4)
    assert copy_statement(table()) == PLAIN
    assert copy_statement(table(), options="") == PLAIN.removesuffix(" (FORMAT csv)")
    assert copy_statement(table(columns=())) == "COPY public.table_1 TO STDOUT (FORMAT csv)"
    assert (
        copy_statement(table(row_filters=("(a)", "(b)"))) == f"{ONLY} WHERE (((a)) OR ((b))){TAIL}"
    )
    assert copy_statement(table(relkind="p")) == ONLY.replace("ONLY ", "") + TAIL
    assert copy_statement(table(columns=(*table().columns, generated))) == (
        ONLY.replace(" FROM", ", g FROM") + TAIL
    )


def test_copy_of_ranges_and_leaves() -> None:
    low, high = "ctid >= '(10,0)'::pg_catalog.tid", "ctid < '(20,0)'::pg_catalog.tid"
    assert copy_statement(table(), ctid_to=20) == f"{ONLY} WHERE {high}{TAIL}"
    assert (
        copy_statement(table(), ctid_from=10, ctid_to=20) == f"{ONLY} WHERE {low} AND {high}{TAIL}"
    )
    filtered = table(row_filters=("(a)", "(b)"), relkind="p")
    leaf = Leaf(1, "s", "leaf", "r")
    assert copy_statement(filtered, leaf=leaf, ctid_from=10) == (
        f'COPY (SELECT id, "na""me" FROM ONLY s.leaf WHERE (((a)) OR ((b))) AND {low}{TAIL}'
    )


def test_names_never_become_variables() -> None:
    conn = ScriptedPublisher(18, {})
    missing_publications(conn, [":relid", "a::b"])
    assert "IN (':relid', 'a::b')" in conn.asked[0]


def test_errors_of_the_publisher_pass_through() -> None:
    class Refusing(ScriptedPublisher):
        def exec(self, sql: str) -> list[Row]:
            raise ReplicationError("permission denied", sqlstate="42501")

    with pytest.raises(ReplicationError) as caught:
        fetch_table_list(Refusing(18, {}), ["p"])
    assert caught.value.code == "42501"
