"""Which types are asked for, when, and what is said of those that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from catalog.errcodes import FeatureNotSupported, ReplicationError
from catalog.pg_subscription import Subscription
from tests.workers.publisher.scripted import ScriptedPublisher
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, row
from workers.apply.apply_batch import Applier
from workers.columnar.binary.forms import Form, Nodes, TypeRow, compile_forms, form_of
from workers.proto.messages import (
    ColumnStatus,
    Delete,
    Insert,
    Message,
    Relation,
    RelationColumn,
    TupleColumn,
)
from workers.publisher.binary_columns import BinaryForms, RestartAsText, catchup_forms, stream_forms
from workers.publisher.interfaces import Row

MOOD, DOMAIN, OWN, PAIR = 16400, 16401, 16402, 16403
TSVECTOR, ACLITEM = 3614, 1033
ROWS = {
    MOOD: TypeRow(MOOD, 0, "enum_send", "enum_out"),
    DOMAIN: TypeRow(DOMAIN, 1700, "numeric_send", "domain_out"),
    OWN: TypeRow(OWN, 0, "?", "?"),
    PAIR: TypeRow(PAIR, 0, "record_send", "record_out"),
}
SUB = Subscription("mysub", "host=db", ("pub",), subbinary=True)
AS_TEXT = replace(SUB, subbinary=False)


def relation(*types: int) -> Relation:
    columns = tuple(RelationColumn(False, f"c{at}", typid, -1) for at, typid in enumerate(types))
    return Relation(7, "public", "t", "d", columns)


def plain(nodes: Nodes) -> tuple[object, object]:
    return nodes.table.tolist(), nodes.roots.tolist()


def nodes(*oids: int) -> tuple[object, object]:
    forms: list[Form | None] = [form_of(oid, {}) for oid in oids]
    return plain(compile_forms(forms))


def test_014_each_type_is_asked_for_once() -> None:
    asked: list[set[int]] = []

    def ask(oids: set[int]) -> dict[int, TypeRow]:
        asked.append(oids)
        return {oid: ROWS[oid] for oid in oids}

    forms = BinaryForms(ask)
    assert plain(forms.of(relation(23, 25))) == nodes(23, 25)
    assert asked == []
    forms.of(relation(MOOD, 23))
    assert plain(forms.of(relation(MOOD, DOMAIN))) == nodes(25, 1700)
    assert asked == [{MOOD}, {DOMAIN}]


def test_014_columns_that_cannot_be_read_are_named_with_the_remedy() -> None:
    """A type of the user's own, one that is gone, and a built-in one whose text is a secret."""
    forms = BinaryForms(lambda oids: {oid: ROWS[oid] for oid in oids & ROWS.keys()})
    with pytest.raises(FeatureNotSupported) as caught:
        forms.of(relation(23, OWN, 99999, 2205, MOOD))
    assert caught.value.primary == 'cannot read table "public.t" in binary format'
    assert caught.value.detail == (
        'The binary form of the type of these columns is not known: "c1", "c2", "c3".'
    )
    assert caught.value.hint == (
        "Set binary = false for the subscription: values then arrive as text."
    )


def publisher(version: int, *published: int) -> ScriptedPublisher:
    """One that publishes columns of these types."""
    described: list[Row] = [
        (str(each.oid), str(each.base), each.send, each.output, None, ",") for each in ROWS.values()
    ]
    types: list[Row] = [(str(oid),) for oid in published]
    return ScriptedPublisher(version, {"puballtables": types, "typdelim": described})


def forms_for(sub: Subscription, conn: ScriptedPublisher) -> bool | None:
    """Whether an apply worker insists on binary form; None for text."""
    forms = stream_forms(cast("Any", conn), sub, lambda: False)
    return None if forms is None else forms.binary_required


@pytest.mark.parametrize(
    ("version", "published", "binary_required"),
    [
        (15, [23], None),
        (16, [23], False),
        (19, [23, 25, 1700], False),
        (18, [], False),
        (18, [23, ACLITEM], False),
        (18, [23, TSVECTOR], None),
        (18, [MOOD, DOMAIN], False),
        (18, [MOOD, OWN], None),
        (18, [99999], None),
        (18, [PAIR], None),  # which may be altered
    ],
)
def test_014_a_stream_is_binary_where_all_that_is_published_can_be_read(
    version: int, published: Sequence[int], binary_required: bool | None
) -> None:
    """Nobody asked for it, so it must never be what stops the stream."""
    assert forms_for(AS_TEXT, publisher(version, *published)) is binary_required


@pytest.mark.parametrize(("version", "binary_required"), [(18, True), (14, True), (13, None)])
def test_014_a_stream_is_binary_where_that_is_asked_for(
    version: int, binary_required: bool | None
) -> None:
    """Whatever is published: what cannot be read may never change."""
    conn = publisher(version, TSVECTOR)
    assert forms_for(SUB, conn) is binary_required
    assert conn.asked == []


@pytest.mark.parametrize(("version", "binary_required"), [(18, True), (14, True), (13, None)])
def test_014_a_sync_worker_s_stream_is_binary_where_that_is_asked_for(
    version: int, binary_required: bool | None
) -> None:
    """It is not started again, as text."""
    forms = catchup_forms(cast("Any", publisher(version, 23)), SUB, lambda: False)
    assert (None if forms is None else forms.binary_required) is binary_required
    assert catchup_forms(cast("Any", publisher(version, 23)), AS_TEXT, lambda: False) is None


def described(typid: int = 23) -> Relation:
    columns = (RelationColumn(True, "id", 23, -1), RelationColumn(False, "v", typid, -1))
    return Relation(1, "public", "a", "d", columns)


def ints(key: int, value: int) -> tuple[TupleColumn, ...]:
    sent = (number.to_bytes(4, "big") for number in (key, value))
    return tuple(TupleColumn(ColumnStatus.BINARY, number) for number in sent)


def worker(world: Subscribed, *, binary_required: bool | None) -> Applier:
    """Of a stream in binary form, or (None) of text."""
    applier = world.worker()
    if binary_required is not None:
        applier.binary = BinaryForms(lambda _: {}, binary_required=binary_required)
    return applier


SOUND: list[Message] = [described(), Insert(1, ints(1, 5))]
AS_TEXT_AFTER_ALL: list[Message] = [Insert(1, ints(3, 5)), Insert(1, row("2", "6"))]
UNKNOWN: list[Message] = [described(TSVECTOR), Delete(1, "K", (ints(1, 0)[0], row("")[0]))]

DAMAGED: list[Message] = [
    Insert(1, (ints(3, 5)[0], TupleColumn(ColumnStatus.BINARY, b"\0\0\0"))),
]


@pytest.mark.parametrize("binary_required", [True, False])
def test_014_binary_changes_are_applied(world: Subscribed, binary_required: bool) -> None:
    again: list[Message] = [Insert(1, ints(2, 6)), Delete(1, "K", ints(1, 0))]
    worker(world, binary_required=binary_required).apply_batch(batch(SOUND, again))
    assert (world.rows("a"), world.position()) == ([(2, 6)], 200)


@pytest.mark.parametrize(
    "unread",
    [AS_TEXT_AFTER_ALL, UNKNOWN, DAMAGED],
    ids=["text", "unknown type", "no value of its type"],
)
def test_014_what_cannot_be_read_comes_again_as_text(
    world: Subscribed, unread: list[Message]
) -> None:
    """What came before it is applied, and nothing of its transaction."""
    applier = worker(world, binary_required=False)
    with pytest.raises(RestartAsText):
        applier.apply_batch(batch(SOUND, [Insert(1, ints(9, 9))], unread, SOUND))
    assert (world.rows("a"), world.position()) == ([(1, 5), (9, 9)], 200)


@pytest.mark.parametrize("unread", [AS_TEXT_AFTER_ALL, UNKNOWN], ids=["text", "unknown type"])
def test_014_what_cannot_be_read_stops_where_binary_was_asked_for(
    world: Subscribed, unread: list[Message]
) -> None:
    """What came before it is applied."""
    applier = worker(world, binary_required=True)
    with pytest.raises(ReplicationError) as caught:
        applier.apply_batch(batch(SOUND, [Insert(1, ints(9, 9))], unread))
    assert caught.value.code == "0A000"
    assert "finished at 0/12B" in caught.value.report()
    assert (world.rows("a"), world.position()) == ([(1, 5), (9, 9)], 200)


def test_014_a_binary_value_in_a_stream_of_text_is_refused(world: Subscribed) -> None:
    sound: list[Message] = [described(), Insert(1, row("1", "5"))]
    with pytest.raises(ReplicationError) as caught:
        worker(world, binary_required=None).apply_batch(batch(sound, [Insert(1, ints(9, 9))]))
    assert caught.value.code == "0A000"
    assert (world.rows("a"), world.position()) == ([(1, 5)], 100)
