"""SQLSTATEs, the text of an error, and what a worker does about a code."""

from __future__ import annotations

import re

import pytest

from catalog import errcodes
from catalog.errcodes import (
    ConnectionFailure,
    Policy,
    ProtocolViolation,
    ReplicationError,
    at_fault,
    error_context,
    internal_error,
    policy,
)
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel

CODES = {name: code for name, code in vars(errcodes).items() if isinstance(code, str)}
SQLSTATES = {
    name: code for name, code in CODES.items() if name.isupper() and not name.startswith("_")
}


def test_each_name_stands_for_one_code() -> None:
    assert all(re.fullmatch("[0-9A-Z]{5}", code) for code in SQLSTATES.values())
    assert len(set(SQLSTATES.values())) == len(SQLSTATES)


def test_each_class_has_a_code_with_a_name() -> None:
    kinds = [kind for kind in vars(errcodes).values() if isinstance(kind, type)]
    codes = {kind.sqlstate for kind in kinds if issubclass(kind, ReplicationError)}
    assert codes <= set(SQLSTATES.values())


def test_a_report_has_the_fields_that_are_set() -> None:
    error = ConnectionFailure("no answer", detail="It was silent.", hint="Try again.")
    assert error.report() == (
        "ERROR:  08006: no answer\nDETAIL:  It was silent.\nHINT:  Try again."
    )
    assert ReplicationError("odd", sqlstate="42000").report() == "ERROR:  42000: odd"


def test_a_report_names_the_file_and_shows_the_line() -> None:
    error = ReplicationError("syntax error")
    error.source, error.excerpt = "a.sql:3", "LINE 1: CREAT\n        ^"
    assert error.report() == (
        "pgsub:a.sql:3: ERROR:  XX000: syntax error\nLINE 1: CREAT\n        ^"
    )


def test_context_lines_go_from_the_inside_out() -> None:
    with pytest.raises(ReplicationError) as caught, error_context("outer"), error_context("inner"):
        raise ProtocolViolation("bad byte")
    assert caught.value.context == ["inner", "outer"]
    assert caught.value.report().endswith("CONTEXT:  inner\nCONTEXT:  outer")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("08006", Policy.RETRY),
        ("08P01", Policy.STOP),
        ("40001", Policy.RETRY),
        ("55P03", Policy.RETRY),
        ("55000", Policy.STOP),
        ("22003", Policy.DATA),
        ("23505", Policy.DATA),
        ("P0001", Policy.DATA),
        ("XX000", Policy.STOP),
    ],
)
def test_the_whole_code_comes_before_its_class(code: str, expected: Policy) -> None:
    assert policy(code) is expected


def test_a_bug_is_named_by_its_type_and_the_innermost_place() -> None:
    try:
        raise ZeroDivisionError("value 42")
    except ZeroDivisionError as error:
        found = internal_error(error)
    assert found.code == "XX000"
    assert re.fullmatch(
        r"unexpected ZeroDivisionError at test_errcodes.py:\d+ in test_a_bug_is_named_\w+",
        found.primary,
    )
    assert internal_error(ValueError()).primary == "unexpected ValueError at ?"


def test_an_error_is_blamed_on_a_table_once() -> None:
    one, other = (
        SubscriptionRel(1, relid, SubRelState.READY, None, "s", "a", "s", "a") for relid in (2, 3)
    )
    with pytest.raises(ReplicationError) as caught, at_fault(other), at_fault(one):
        raise ReplicationError("x")
    assert caught.value.tables == (one,)
