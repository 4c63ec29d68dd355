"""Rules for columns: what is wrong with a rule, and what an excluded column must not become."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.errcodes import FeatureNotSupported, InvalidParameterValue, UndefinedColumn
from catalog.pg_subscription import TableOptions
from tests.workers.apply.test_follow_schema import shape
from tests.workers.transactions import relation
from workers.changes.column_rules import (
    GuardedColumn,
    check_guarded,
    checked_columns,
    guarded_columns,
    nearest_name,
    taken_columns,
    taken_of,
    unnamed_column,
)
from workers.changes.remembered_columns import RememberedColumn, RememberedColumns
from workers.publisher.fingerprint import PublishedActions
from workers.publisher.remote_table import ColumnType, RemoteColumn, RemoteTable

INT4 = ColumnType(23, -1, "pg_catalog", "int4", "b")
OPTIONS = TableOptions(excluded=("ssn",))
TAKEN = tuple(RememberedColumn(n, name, 23, -1, 23, n) for n, name in ((1, "id"), (3, "v")))
MEMORY = RememberedColumns(
    "e", 1, 3, {1: 5}, TAKEN, guarded=guarded_columns(shape("id", "ssn", "v"), OPTIONS)
)


def table(*names: str, key: str = "id", under_full: str = "") -> RemoteTable:
    columns = tuple(
        RemoteColumn(n, name, name == key, False, INT4, 23) for n, name in enumerate(names, 1)
    )
    actions = PublishedActions(True, True, True, True, False)
    under = frozenset({under_full} if under_full else ())
    return RemoteTable(
        "public", "a", 1, "r", "d", columns, (), actions, identity=1, key_under_full=under
    )


def test_what_is_taken() -> None:
    remote, message = table("id", "ssn", "v"), relation(1, "a", "id", "ssn", "v")
    assert [each.name for each in taken_columns(remote, OPTIONS).columns] == ["id", "v"]
    assert taken_of(message, OPTIONS) == relation(1, "a", "id", "v")
    assert taken_columns(remote, TableOptions()) is remote
    assert taken_of(message, TableOptions()) is message


def test_a_rule_that_names_no_column_has_the_nearest_name() -> None:
    options = TableOptions(excluded=("sssn",), columns=(("V", "value"), ("other", "x")))
    names = ["id", "ssn", "v"]
    wrong = [unnamed_column("public.a", name, names) for name in options.rules]
    assert {each.code for each in wrong} == {"42703"}
    assert [each.primary for each in wrong] == [
        f'column "{name}" of the configuration of table "public.a" is not published'
        for name in ("V", "other", "sssn")
    ]
    assert [(each.hint or "").partition(".")[0] for each in wrong] == [
        'Perhaps you meant column "v"',
        "Name a column as the publisher does, or take the rule out",
        'Perhaps you meant column "ssn"',
    ]
    with pytest.raises(UndefinedColumn):
        checked_columns(table("id", "ssn", "v"), options)
    checked_columns(table("id", "ssn", "v"), replace(options, excluded=()))  # a name can do no harm


def test_the_nearest_name_ignores_case_and_may_be_none() -> None:
    assert nearest_name("EMAIL", ["id", "e_mail", "Email"]) == "Email"
    assert nearest_name("zzz", ["id", "email"]) is None


@pytest.mark.parametrize(
    "remote", [table("id", "ssn", key="ssn"), table("id", "ssn", key="", under_full="ssn")]
)
def test_a_key_is_not_excluded(remote: RemoteTable) -> None:
    with pytest.raises(InvalidParameterValue) as caught:
        checked_columns(remote, OPTIONS)
    assert caught.value.code == "22023"


def test_a_column_is_left() -> None:
    with pytest.raises(FeatureNotSupported, match="all columns"):
        checked_columns(table("ssn", key=""), OPTIONS)


@pytest.mark.parametrize(
    ("names", "numbers", "fine"),
    [
        (("id", "ssn", "v"), (1, 2, 3), True),
        (("id", "ssn", "v", "w"), (1, 2, 3, 4), True),
        (("id", "v"), (1, 3), True),  # dropped
        (("id", "v", "ssn"), (1, 3, 4), True),  # dropped, and another one under the name
        (("id", "social", "v"), (1, 2, 3), False),
        (("id", "v", "ssn"), (1, 2, 3), False),
        (("id", "social", "v", "ssn"), (1, 2, 3, 4), False),
        (("id", "v", "social"), (1, 3, 4), False),  # dropped: was social the name before?
        (("id", "v", "social", "ssn"), (1, 3, 4, 5), False),
    ],
)
def test_a_number_keeps_its_rule(
    names: tuple[str, ...], numbers: tuple[int, ...], fine: bool
) -> None:
    now = shape(*names, numbers=numbers)
    if fine:
        check_guarded("public.a", names, OPTIONS, before=MEMORY, shape=now)
    else:
        with pytest.raises(GuardedColumn) as caught:
            check_guarded("public.a", names, OPTIONS, before=MEMORY, shape=now)
        assert not caught.value.copies


def test_a_new_column_of_another_type_is_not_the_dropped_one() -> None:
    now = shape("id", "v", "more", numbers=(1, 3, 4))
    now = replace(now, columns=(*now.columns[:2], replace(now.columns[2], typid=25)))
    check_guarded("public.a", ["id", "v", "more"], OPTIONS, before=MEMORY, shape=now)


def test_another_name_with_a_rule_is_no_leak() -> None:
    both = TableOptions(excluded=("social",))
    now = shape("id", "social", "v")
    check_guarded("public.a", ["id", "social", "v"], both, before=MEMORY, shape=now)


def test_numbers_of_another_table_say_nothing() -> None:
    other = replace(MEMORY, relid=2)
    now = shape("id", "v", "ssn")
    check_guarded("public.a", ["id", "v", "ssn"], OPTIONS, before=other, shape=now)
    with pytest.raises(GuardedColumn):
        check_guarded("public.a", ["id", "v"], OPTIONS, before=other, shape=now)


def test_a_dropped_column_stays_remembered() -> None:
    less = shape("id", "v", numbers=(1, 3))
    kept = guarded_columns(less, OPTIONS, MEMORY)
    assert [(each.attnum, each.typid) for each in kept] == [(2, 0)]
    back = shape("id", "v", "ssn", numbers=(1, 3, 4))
    again = guarded_columns(back, OPTIONS, replace(MEMORY, guarded=kept))
    assert [(each.attnum, each.typid) for each in again] == [(4, 23)]
