"""Which types are asked for, when, and what is said of those that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.errcodes import FeatureNotSupported
from catalog.pg_subscription import Subscription
from workers.binary_forms import BinaryForms, stream_forms
from workers.columnar.binary_catalog import TypeRow, form_of
from workers.proto.messages import Relation, RelationColumn
from workers.stream import streams_binary

MOOD, DOMAIN, OWN = 16400, 16401, 16402
ROWS = {
    MOOD: TypeRow(MOOD, 0, "enum_send", "enum_out"),
    DOMAIN: TypeRow(DOMAIN, 1700, "numeric_send", "domain_out"),
    OWN: TypeRow(OWN, 0, "?", "?"),
}
SUB = Subscription("mysub", "host=db", ("pub",), subbinary=True)


def relation(*types: int) -> Relation:
    columns = tuple(RelationColumn(False, f"c{at}", typid, -1) for at, typid in enumerate(types))
    return Relation(7, "public", "t", "d", columns)


def test_014_each_type_is_asked_for_once() -> None:
    asked: list[set[int]] = []

    def ask(oids: set[int]) -> dict[int, TypeRow]:
        asked.append(oids)
        return {oid: ROWS[oid] for oid in oids}

    forms = BinaryForms(ask)
    assert forms.of(relation(23, 25)) == (form_of(23, {}), form_of(25, {}))
    assert asked == []
    forms.of(relation(MOOD, 23))
    assert forms.of(relation(MOOD, DOMAIN)) == (form_of(25, {}), form_of(1700, {}))
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


@pytest.mark.parametrize(("version", "stream"), [(18, True), (14, True), (13, False)])
def test_014_what_is_binary_by_publisher_version(version: int, stream: bool) -> None:
    assert streams_binary(SUB, version) is stream
    assert (stream_forms(SUB, version, lambda: False, Path()) is not None) is stream
    text = Subscription("mysub", "host=db", ("pub",))
    assert not streams_binary(text, version)
