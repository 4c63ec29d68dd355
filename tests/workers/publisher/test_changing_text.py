"""Types whose values get another text: what is asked, and what is found changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.workers.publisher.scripted import ScriptedPublisher
from workers.publisher.changing_text import (
    TextType,
    TextTypes,
    fetch_text_mark,
    fetch_text_types,
    from_json,
    is_compared_name,
    is_name_of_object,
    may_change_text,
    text_changes,
)

STAGE = TextType("e", "stage", {"16402": "new", "16404": "done"})
POINT = TextType("c", "point3", {"1": "x", "2": "y"})
TYPES = TextTypes(
    {"s": (16400,), "p": (16410, 16400)}, {16400: STAGE, 16410: POINT}, {"s": 1, "p": 2}
)


def with_parts(oid: int, **parts: str) -> TextTypes:
    """The types after an ALTER TYPE."""
    numbers = {number.removeprefix("n"): text for number, text in parts.items()}
    return replace(TYPES, types={**TYPES.types, oid: replace(TYPES.types[oid], parts=numbers)})


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (TYPES, []),
        (
            with_parts(16400, n16402="open", n16404="done"),
            [f'column "{name}": label "new" of type stage is "open"' for name in "sp"],
        ),
        (with_parts(16400, n16402="new", n16403="late", n16404="done"), []),  # a new label
        (
            with_parts(16410, n1="x", n2="y", n3="z"),
            ['column "p": type point3 has a new attribute "z"'],
        ),
        (with_parts(16410, n1="x", n2="why"), []),  # the text has no names
        (with_parts(16410, n2="y"), ['column "p": type point3 has lost attribute "x"']),
        (replace(TYPES, columns={"s": (16410,)}), []),  # another type altogether
        (replace(TYPES, columns={"other": (16400,)}), []),  # a new column, or a renamed one
        (replace(TYPES, numbers={"s": 1, "p": 4}), ['column "p" was dropped and added again']),
        (replace(TYPES, numbers={"s": 1, "other": 2}), []),
    ],
)
def test_what_has_changed(now: TextTypes, said: list[str]) -> None:
    assert text_changes(TYPES, now) == said


OF_STAGE = {"16402": "700", "16404": "700"}
OF_POINT = {"1": "2", "2": "2"}
VERSIONED = replace(
    TYPES,
    types={16400: replace(STAGE, versions=OF_STAGE), 16410: replace(POINT, versions=OF_POINT)},
)


@pytest.mark.parametrize(
    ("oid", "now", "said"),
    [
        (16400, STAGE, []),  # stored by an older version, or asked by one
        (16400, replace(STAGE, versions={**OF_STAGE, "16406": "731"}), []),
        (16400, replace(STAGE, versions={"16402": "731", "16404": "731"}), []),  # an upgrade
        (
            16400,
            replace(STAGE, versions={**OF_STAGE, "16404": "731"}),
            [
                f'column "{name}": label "done" of type stage had another name for a while'
                for name in "sp"
            ],
        ),
        (
            16400,
            TextType(
                "e", "stage", {"16402": "open", "16404": "done"}, {**OF_STAGE, "16402": "731"}
            ),
            [f'column "{name}": label "new" of type stage is "open"' for name in "sp"],
        ),
        (
            16410,
            replace(POINT, versions={"1": "3", "2": "3"}),
            ['column "p": type point3 had another attribute for a while'],
        ),
        (
            16410,
            TextType("c", "point3", {"1": "x", "2": "y", "3": "z"}, {"1": "3", "2": "3", "3": "3"}),
            ['column "p": type point3 has a new attribute "z"'],
        ),
        (16410, replace(POINT, parts={"1": "x", "2": "why"}, versions=OF_POINT), []),
    ],
)
def test_a_change_that_was_undone_between_two_looks(
    oid: int, now: TextType, said: list[str]
) -> None:
    found = replace(VERSIONED, types={**VERSIONED.types, oid: now})
    assert text_changes(VERSIONED, found) == said
    assert from_json(found.as_json()) == found


NAMES = TextType("b", "regclass", {"16500": "public.a", "16510": "public.b"})


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"16500": "public.a", "16510": "public.b", "16520": "public.new"}, []),
        ({"16500": "public.a"}, []),  # dropped: the lake keeps the last name
        ({}, []),  # too many to compare
        (
            {"16500": "old.a", "16510": "public.b"},
            ['column "r": "public.a" of type regclass has the name "old.a"'],
        ),
    ],
)
def test_a_renamed_object(names: dict[str, str], said: list[str]) -> None:
    before = TextTypes({"r": (2205,)}, {2205: NAMES}, {"r": 1})
    now = replace(before, types={2205: replace(NAMES, parts=names)})
    assert text_changes(before, now) == said


def test_the_names_of_objects() -> None:
    listed: list[tuple[str | None, ...]] = [
        ("16500", "public.a"),
        ("16510", "public.b"),
    ]
    answers: dict[str, list[tuple[str | None, ...]]] = {
        "needed": [("5", "r", "2205", "b", "regclass")],
        "pg_catalog.pg_class c\nJOIN pg_catalog.pg_namespace": listed,
        "f.files": [("5", "r", "1", "2205/-1/9", "5:50")],
    }
    conn = ScriptedPublisher(18, answers)
    found = fetch_text_types(conn, [5])[5]
    assert (found.columns, found.types) == ({"r": (2205,)}, {2205: NAMES})
    answers["pg_catalog.pg_class c\nJOIN pg_catalog.pg_namespace"] = listed * 5001
    assert fetch_text_types(ScriptedPublisher(18, answers), [5])[5].types[2205].parts == {}


def test_the_stored_text_is_the_types() -> None:
    assert from_json(TYPES.as_json()) == TYPES
    assert from_json(TextTypes().as_json()) == TextTypes()
    assert TYPES.of_columns(["s"]) == TextTypes({"s": (16400,)}, {16400: STAGE}, {"s": 1})


@pytest.mark.parametrize("version", [13, 18])
def test_the_types_of_relations(version: int) -> None:
    conn = ScriptedPublisher(
        version,
        {
            "needed": [
                ("5", "p", "16400", "e", "stage"),
                ("5", "p", "16410", "c", "point3"),
                ("6", "s", "16400", "e", "stage"),
            ],
            "enumtypid": [
                ("16400", "16402", "new", "700"),
                ("16400", "16404", "done", "700"),
                ("16410", "1", "x", "2"),
                ("16410", "2", "y", "2"),
            ],
            "f.files": [
                ("5", "p", "3", "16410/-1/9", "5:50"),
                ("6", "s", "1", "16400/-1/9", "6:60"),
                ("7", "v", "2", "23/-1/9", None),
            ],
        },
    )
    found = fetch_text_types(conn, [6, 7, 5])
    stage = replace(STAGE, versions={"16402": "700", "16404": "700"})
    both = {16400: stage, 16410: replace(POINT, versions={"1": "2", "2": "2"})}
    versions = {"s": "16400/-1/9"}
    assert found[6] == TextTypes({"s": (16400,)}, {16400: stage}, {"s": 1}, versions, "6:60")
    versions = {"p": "16410/-1/9"}
    assert found[5] == TextTypes({"p": (16400, 16410)}, both, {"p": 3}, versions, "5:50")
    assert found[7] == TextTypes(numbers={"v": 2}, versions={"v": "23/-1/9"})
    assert "IN (5, 6, 7)" in conn.asked[0]
    assert ("rngmultitypid" in conn.asked[0]) is (version >= 14)
    assert len(conn.asked) == 3


def test_without_such_types_are_two_questions_or_none() -> None:
    conn = ScriptedPublisher(18, {})
    assert fetch_text_types(conn, []) == {}
    assert conn.asked == []
    assert fetch_text_types(conn, [5]) == {5: TextTypes()}
    assert len(conn.asked) == 2


def test_which_types_are_meant() -> None:
    assert is_name_of_object(2205)  # regclass
    assert is_name_of_object(2210)  # regclass[]
    assert not is_name_of_object(25)
    assert is_compared_name(2210)
    assert not is_compared_name(1033)  # aclitem
    assert may_change_text([23, 16384])
    assert may_change_text([23, 2205])
    assert not may_change_text([23, 1033])


PLAIN = TextTypes(numbers={"v": 2, "w": 3}, versions={"v": "23/-1/9", "w": "23/-1/9"}, files="5:1")


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"files": "5:2"}, []),  # VACUUM FULL, TRUNCATE
        ({"versions": {"v": "23/-1/10", "w": "23/-1/9"}}, []),  # SET DEFAULT
        (
            {"versions": {"v": "23/-1/10", "w": "23/-1/9"}, "files": "5:2"},
            ['values of column "v" were computed anew'],
        ),
        ({"versions": {"v": "20/-1/10", "w": "23/-1/9"}, "files": "5:2"}, []),  # told by a message
        ({"versions": {"v": "23/-1/10", "w": "23/-1/9"}, "files": "5:1 6:1"}, []),  # ATTACH
    ],
)
def test_values_that_were_computed_anew_under_the_same_type(
    now: dict[str, Any], said: list[str]
) -> None:
    assert text_changes(PLAIN, replace(PLAIN, **now)) == said


def test_nothing_is_known_of_a_rewrite_before_the_first_look() -> None:
    assert text_changes(TextTypes(numbers={"v": 2}), PLAIN) == []


def test_the_mark_is_asked_for_in_one_question() -> None:
    conn = ScriptedPublisher(18, {"sha256": [("3f",)]})
    roles = TextType("b", "regrole", {"16390": "alice"})
    too_many = replace(NAMES, parts={})
    types = {16400: STAGE, 16410: POINT, 2205: too_many, 4096: roles}
    assert fetch_text_mark(conn, types) == "3f"
    (asked,) = conn.asked
    assert "IN (16400, 16410)" in asked
    assert "pg_roles" in asked
    assert "pg_class c" not in asked  # more relations than are compared
    assert fetch_text_mark(conn, {2205: too_many}) == ""
    assert len(conn.asked) == 1


@pytest.mark.parametrize(("version", "is_md5"), [(10, True), (11, False), (18, False)])
def test_a_server_under_fips_is_not_asked_for_md5(version: int, is_md5: bool) -> None:
    conn = ScriptedPublisher(version, {"text": [("3f",)]})
    assert fetch_text_mark(conn, {16400: STAGE}) == "3f"
    assert ("md5" in conn.asked[0]) is is_md5
