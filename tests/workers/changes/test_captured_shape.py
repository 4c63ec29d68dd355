"""The content of a trigger's message becomes the shape that a question would have brought."""

from __future__ import annotations

import json
from typing import Any

import pytest

from catalog.pg_lsn import LSN
from tests.workers.trigger_messages import KEY, sealed
from workers.changes.cannot_follow import CannotFollow
from workers.changes.captured_shape import (
    CapturedShape,
    ToldInStream,
    captured,
    check_rewritten,
    seal,
)

INT4 = [23, "pg_catalog", "int4", "b", 0, -1, 0, ","]
FOUND: dict[str, Any] = {
    "version": 1,
    "relid": 7,
    "rewritten": 0,
    "using": False,
    "columns": [
        [1, "id", 23, -1, False, False, None, "7:9", None, "801", None],
        [2, "........pg.dropped.2........", 0, -1, True, False, None, "7:9", None, "803", None],
        [3, "v", 23, -1, False, True, "7", "7:9", None, "803", "{5}"],
    ],
    "types": [INT4],
    "lists": [["other", 5, "5/1*"], ["pub", 12, "12/1"], ["pub", 9, "9/2*"]],
}
TYPE, COMPUTED = 4, 2


def content(xid: int = 1, **changed: Any) -> bytes:
    return sealed({**FOUND, **changed}, xid).content


def shape(**changed: Any) -> CapturedShape:
    found = captured(content(**changed), KEY, 1, LSN(100))
    assert found is not None
    return found


def of_type(typid: int, **changed: Any) -> CapturedShape:
    column = [3, "v", typid, -1, False, False, None, "7:9", None, "803", None]
    types = [INT4, [typid, "pg_catalog", f"type{typid}", "b", 0, -1, 0, ","]]
    return shape(columns=[*FOUND["columns"][:2], column], types=types, **changed)


def test_the_shape_is_that_of_the_question() -> None:
    told = shape(rewritten=TYPE)
    assert (told.relid, told.rewritten, told.using, told.lsn) == (7, TYPE, False, LSN(100))
    found = told.shape(("pub",))
    assert (found.relid, found.dropped, dict(found.files)) == (7, frozenset({2}), {7: 9})
    assert [(each.attnum, each.name, each.type.typname) for each in found.columns] == [
        (1, "id", "int4"),
        (3, "v", "int4"),
    ]
    assert [(each.computed, each.stored) for each in found.columns] == [(False, None), (True, "5")]
    assert (found.lists, told.shape(()).lists) == ("9/2* 12/1", "")


def test_a_rewriting_is_kept_until_a_row_follows() -> None:
    first, second = shape(rewritten=COMPUTED, using=True), shape()
    assert (second.after(first).rewritten, second.after(first).using) == (COMPUTED, True)
    assert second.after(None) == second


@pytest.mark.parametrize(
    ("types", "loses"), [((23, 23), False), ((23, 20), False), ((700, 20), True), ((25, 23), True)]
)
def test_two_types_one_after_the_other_may_lose_values(types: tuple[int, int], loses: bool) -> None:
    """int4 → float4 → int8 looks like int4 → int8."""
    first, second = (of_type(each, rewritten=TYPE) for each in types)
    assert second.after(first).using == loses


@pytest.mark.parametrize(
    ("changed", "retyped", "follows"),
    [
        ({"rewritten": TYPE}, True, True),
        ({"rewritten": TYPE}, False, False),
        ({"rewritten": TYPE, "using": True}, True, False),
        ({"rewritten": TYPE | COMPUTED}, True, False),
        ({"using": True}, False, True),
    ],
)
def test_values_are_equal_only_under_a_type_that_holds_more(
    changed: dict[str, Any], retyped: bool, follows: bool
) -> None:
    if follows:
        check_rewritten(shape(**changed), retyped=retyped)
        return
    with pytest.raises(CannotFollow):
        check_rewritten(shape(**changed), retyped=retyped)


def body(**changed: Any) -> bytes:
    return json.dumps({**FOUND, "xid": 1, **changed}).encode()


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        body(version=2),
        body(xid=2),
        body(relid="x"),
        body(columns=[]),
        body(columns=[[1, "id"]]),
        body(lists=[["pub"]]),
        body(types=[]),
    ],
)
def test_what_no_trigger_made_is_no_shape(wrong: bytes) -> None:
    assert captured(seal(KEY, wrong) + wrong, KEY, 1, LSN(100)) is None


def test_a_message_of_somebody_else_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    """Without the key, with another key, changed, or emitted once more in a later transaction."""
    stream = ToldInStream(KEY)
    real = content()
    forged = [body(), seal("", body()) + body(), sealed(FOUND, key="other").content]
    forged += [real[:64] + body(relid=8), content(xid=2), real.replace(b"7:9", b"7:8")]
    assert [stream.hear(each, 1, LSN(100)) for each in forged] == [None] * len(forged)
    assert stream.announce(7, changed=False) is None
    assert [record.getMessage().split()[0] for record in caplog.records] == [
        "action=untrusted_message"
    ]
    assert stream.hear(real, 1, LSN(100)) == stream.announce(7, changed=False) == shape()
    assert ToldInStream().hear(real, 1, LSN(100)) is None


def test_a_batch_that_fails_leaves_what_was_told_before() -> None:
    stream = ToldInStream(KEY)
    stream.hear(content(), 1, LSN(100))
    twin = stream.copy()
    assert twin.announce(7, changed=True) == shape()
    assert stream.announce(7, changed=True) == shape()


def test_a_shape_is_in_force_until_a_message_without_one_has_other_columns() -> None:
    stream = ToldInStream(KEY)
    stream.hear(content(), 1, LSN(100))
    assert stream.in_force == {}
    stream.announce(7, changed=False)
    stream.announce(7, changed=False)
    assert stream.in_force == {7: shape()}
    stream.announce(7, changed=True)
    assert stream.in_force == {}
