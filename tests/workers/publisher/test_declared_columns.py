"""Columns as a table's definition has them; every version is in ``tests/integration``."""

from __future__ import annotations

from catalog.errcodes import LOCK_NOT_AVAILABLE, ObjectInUse, ReplicationError, UndefinedTable
from tests.workers.publisher.scripted import ScriptedPublisher
from workers.publisher.declared_columns import (
    DeclaredColumn,
    do_not_wait_for_locks,
    fetch_declared_columns,
    locked,
)
from workers.publisher.interfaces import Row

ROWS: list[Row] = [
    ("1", "id", "integer", "t", None, "a"),
    ("2", "made", "timestamp with time zone", "f", "now()", ""),
    ("4", "twice", "numeric(6,2)", "f", "(id * 2)", "s"),
    ("5", "note", "text", "f", None, ""),
]


def test_defaults_are_worded_as_in_a_definition() -> None:
    publisher = ScriptedPublisher(18, {"format_type": ROWS})
    assert fetch_declared_columns(publisher, 16389) == (
        DeclaredColumn(1, "id", "integer", False, "generated always as identity"),
        DeclaredColumn(2, "made", "timestamp with time zone", True, "now()"),
        DeclaredColumn(4, "twice", "numeric(6,2)", True, "generated always as (id * 2) stored"),
        DeclaredColumn(5, "note", "text", True),
    )
    assert "attgenerated" in publisher.asked[0]
    old = ScriptedPublisher(11, {"format_type": ROWS[:1]})
    assert fetch_declared_columns(old, 16389)[0].name == "id"
    assert "attgenerated" not in old.asked[0]


def test_the_command_waits_for_no_lock() -> None:
    publisher = ScriptedPublisher(18, {})
    do_not_wait_for_locks(publisher)
    assert "lock_timeout" in publisher.asked[0]
    refused = ReplicationError("canceling statement", sqlstate=LOCK_NOT_AVAILABLE)
    told = locked(refused, "public.t")
    assert isinstance(told, ObjectInUse)
    assert told.primary == 'table "public.t" is locked on the publisher'
    other = UndefinedTable("no such table")
    assert locked(other, "public.t") is other
