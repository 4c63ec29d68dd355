"""The lake has hashes in place of values, and never another hash for an equal value."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from tests.workers.apply.test_follow_schema import Publisher, rows, shape, worker
from tests.workers.subscribed import EPOCH, Subscribed
from tests.workers.transactions import batch, relation, row
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import LakeColumn, LakeIdent, Stamp
from workers.proto.messages import ColumnStatus, Delete, Insert, Message, TupleColumn, Update
from workers.publisher.table_shape import TableShape

MESSAGE = relation(1, "a", "id", "ssn", "v")
UNSENT = TupleColumn(ColumnStatus.UNCHANGED)
ENV = "PGSUB_TEST_MASK_KEY"
IDENT = LakeIdent("public", "a")


def sha(value: object) -> str:
    return hashlib.sha256(f"{value}".encode()).hexdigest()


def keyed(value: object, key: str = "secret") -> str:
    return hmac.new(key.encode(), f"{value}".encode(), "sha256").hexdigest()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV, "secret")


@pytest.fixture
def publisher() -> Publisher:
    found = Publisher()
    found.shape = shape("id", "ssn", "v")
    return found


def lake_table(world: Subscribed, **types: pa.DataType) -> None:
    """A lake table as the copy makes it for the columns of a mask."""
    columns = [LakeColumn(name, type) for name, type in types.items()]
    rel = world.rel("a")
    del world.lake.tables[IDENT]
    stamp = Stamp(origin_name(world.sub.oid), InvalidXLogRecPtr, EPOCH, InvalidXLogRecPtr)
    MemoryDestination(world.lake).create_table(
        IDENT, columns, owner="u", relid=rel.srrelid, stamp=stamp
    )


@pytest.fixture
def masked(world: Subscribed, publisher: Publisher) -> Subscribed:
    """Table ``a`` (id, ssn, v) has a row; ``ssn`` is hashed."""
    lake_table(world, id=pa.int64(), ssn=pa.string(), v=pa.int32())
    world.declare("a", masks=(("ssn", "sha256", ""),))
    worker(world, publisher).apply_batch(batch([MESSAGE, Insert(1, row("1", "777", "10"))]))
    publisher.asked = 0
    return world


def test_the_lake_has_the_hashes(masked: Subscribed, publisher: Publisher) -> None:
    null = TupleColumn(ColumnStatus.NULL)
    changes: list[Message] = [
        MESSAGE,
        Insert(1, row("2", "778", "20")),
        Insert(1, (*row("3"), null, *row("30"))),
        Insert(1, row("4", "", "40")),
        Update(1, None, None, (*row("1"), UNSENT, *row("11"))),
        Update(1, None, None, row("2", "779", "21")),
        Delete(1, "K", row("4", "", "")),
    ]
    worker(masked, publisher).apply_batch(batch(changes, after=100))
    assert rows(masked) == [
        {"id": 1, "ssn": sha(777), "v": 11},
        {"id": 2, "ssn": sha(779), "v": 21},
        {"id": 3, "ssn": None, "v": 30},
    ]
    assert publisher.asked == 0


def test_a_key_is_found_by_its_hash(world: Subscribed, publisher: Publisher) -> None:
    lake_table(world, id=pa.string(), ssn=pa.int32(), v=pa.int32())
    world.declare("a", masks=(("id", "keyed-hash", ENV),))
    changes: list[Message] = [
        MESSAGE,
        *(Insert(1, row(f"{n}", "7", "10")) for n in range(1, 5)),
    ]
    worker(world, publisher).apply_batch(batch(changes))
    later: list[Message] = [
        MESSAGE,
        Delete(1, "K", row("1", "", "")),
        Update(1, None, None, row("2", "8", "20")),
        Update(1, "K", row("3", "", ""), row("30", "9", "30")),
    ]
    worker(world, publisher).apply_batch(batch(later, after=100))
    assert rows(world) == sorted(
        [
            {"id": keyed(2), "ssn": 8, "v": 20},
            {"id": keyed(30), "ssn": 9, "v": 30},
            {"id": keyed(4), "ssn": 7, "v": 10},
        ],
        key=lambda each: str(each["id"]),
    )


@pytest.mark.parametrize("mask", ["sha256", "null"])
def test_a_key_has_no_other_mask(world: Subscribed, publisher: Publisher, mask: str) -> None:
    lake_table(world, id=pa.string(), ssn=pa.int32(), v=pa.int32())
    world.declare("a", masks=(("id", mask, ""),))
    with pytest.raises(ReplicationError) as caught:
        worker(world, publisher).apply_batch(batch([MESSAGE, Insert(1, row("1", "777", "10"))]))
    assert caught.value.code == "22023"
    assert "keyed-hash" in (caught.value.hint or "")


def test_whole_rows_are_found_by_their_hashes(masked: Subscribed, publisher: Publisher) -> None:
    full = relation(1, "a", "id", "ssn", "v", identity="f")
    inserts: list[Message] = [full, *(Insert(1, row("2", str(n % 2), "20")) for n in range(4))]
    worker(masked, publisher).apply_batch(batch(inserts, after=100))
    changed: list[Message] = [
        full,
        Delete(1, "O", row("2", "1", "20")),
        Update(1, "O", row("2", "0", "20"), row("2", "0", "21")),
    ]
    worker(masked, publisher).apply_batch(batch(changed, after=200))
    found = sorted((each["id"], each["ssn"], each["v"]) for each in rows(masked))
    left = [(2, sha(0), 20), (2, sha(0), 21), (2, sha(1), 20)]
    assert found == [(1, sha(777), 10), *sorted(left)]


def test_a_column_that_is_masked_by_null_stays_null(
    world: Subscribed, publisher: Publisher
) -> None:
    lake_table(world, id=pa.int64(), ssn=pa.int32(), v=pa.int32())
    world.declare("a", masks=(("ssn", "null", ""),))
    changes: list[Message] = [MESSAGE, Insert(1, row("1", "777", "10"))]
    worker(world, publisher).apply_batch(batch(changes))
    update = Update(1, None, None, row("1", "778", "11"))
    worker(world, publisher).apply_batch(batch([MESSAGE, update], after=100))
    assert rows(world) == [{"id": 1, "ssn": None, "v": 11}]


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (("id", "social", "v"), (1, 2, 3)),
        (("id", "v", "ssn"), (1, 2, 3)),
        (("id", "social", "v", "ssn"), (1, 2, 3, 4)),
    ],
)
def test_another_name_stops_the_table(
    masked: Subscribed, publisher: Publisher, names: tuple[str, ...], numbers: tuple[int, ...]
) -> None:
    publisher.shape = shape(*names, numbers=numbers)
    new: list[Message] = [
        relation(1, "a", *names),
        Insert(1, row("3", *["779"] * (len(names) - 1))),
    ]
    with pytest.raises(ReplicationError) as caught:
        worker(masked, publisher).apply_batch(batch(new, after=100))
    assert caught.value.code == "55000"
    assert caught.value.primary.startswith('masked column "ssn" of table "public.a" is')
    assert not masked.rel("a").recopy
    assert rows(masked) == [{"id": 1, "ssn": sha(777), "v": 10}]


def test_a_dropped_column_is_followed(masked: Subscribed, publisher: Publisher) -> None:
    less = TableShape(1, shape("id", "v", numbers=(1, 3)).columns, frozenset({2}), {1: 5})
    publisher.shape = less
    message = relation(1, "a", "id", "v")
    worker(masked, publisher).apply_batch(batch([message, Insert(1, row("2", "20"))], after=100))
    publisher.shape = replace(less, columns=shape("id", "v", "ssn", numbers=(1, 3, 4)).columns)
    again = relation(1, "a", "id", "v", "ssn")
    worker(masked, publisher).apply_batch(
        batch([again, Insert(1, row("3", "30", "999"))], after=200)
    )
    found = rows(masked)
    assert [each["ssn"] for each in found] == [None, None, sha(999)]
    assert [each["ssn_dropped_2"] for each in found] == [sha(777), None, None]


def test_a_stored_default_of_a_masked_column_is_not_filled_in(
    masked: Subscribed, publisher: Publisher
) -> None:
    """The column was dropped, and comes back with a default: a copy masks the default."""
    publisher.shape = TableShape(
        1, shape("id", "v", numbers=(1, 3)).columns, frozenset({2}), {1: 5}
    )
    less = relation(1, "a", "id", "v")
    worker(masked, publisher).apply_batch(batch([less, Insert(1, row("2", "20"))], after=100))
    columns = shape("id", "v", "ssn", numbers=(1, 3, 4), has_missing=True).columns
    publisher.shape = replace(publisher.shape, columns=columns)
    again = relation(1, "a", "id", "v", "ssn")
    with pytest.raises(ReplicationError, match="cannot be followed"):
        worker(masked, publisher).apply_batch(
            batch([again, Insert(1, row("3", "30", "999"))], after=200)
        )
    assert [each["ssn"] for each in rows(masked)] == [sha(777), None]


@pytest.mark.parametrize("mode", ["follow", "stop"])
def test_another_key_stops_the_table(
    world: Subscribed, publisher: Publisher, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """An equal value would have another hash than in the rows that are there."""
    lake_table(world, id=pa.int64(), ssn=pa.string(), v=pa.int32())
    world.declare("a", masks=(("ssn", "keyed-hash", ENV),), on_schema_change="follow")
    worker(world, publisher).apply_batch(batch([MESSAGE, Insert(1, row("1", "777", "10"))]))
    world.declare("a", masks=(("ssn", "keyed-hash", ENV),), on_schema_change=mode)
    monkeypatch.setenv(ENV, "another secret")
    new = batch([MESSAGE, Insert(1, row("2", "777", "20"))], after=100)
    with pytest.raises(ReplicationError, match="masked with another key") as caught:
        worker(world, publisher).apply_batch(new)
    assert caught.value.code == "55000"
    assert "secret" not in caught.value.report()
    stored = world.lake.tables[IDENT].publisher_columns or ""
    assert "keyed-hash" in stored
    assert "secret" not in stored
    monkeypatch.delenv(ENV)
    with pytest.raises(ReplicationError, match=f'environment variable "{ENV}" is not set'):
        worker(world, publisher).apply_batch(new)
    monkeypatch.setenv(ENV, "secret")
    worker(world, publisher).apply_batch(new)
    assert [each["ssn"] for each in rows(world)] == [keyed(777), keyed(777)]


@pytest.mark.parametrize("known", ["by name", "not yet"])
def test_another_key_is_noticed_though_no_number_is_known(
    world: Subscribed, publisher: Publisher, monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    """A lake server that changes no columns; a publisher with more changes behind the message."""
    if known == "by name":
        monkeypatch.setattr(MemoryDestination, "changes_columns", False)
    else:
        publisher.shape = shape("id", "ssn", "w")
    lake_table(world, id=pa.int64(), ssn=pa.string(), v=pa.int32())
    world.declare("a", masks=(("ssn", "keyed-hash", ENV),))
    worker(world, publisher).apply_batch(batch([MESSAGE, Insert(1, row("1", "777", "10"))]))
    new = batch([MESSAGE, Insert(1, row("2", "777", "20"))], after=100)
    monkeypatch.setenv(ENV, "another secret")
    with pytest.raises(ReplicationError, match="masked with another key"):
        worker(world, publisher).apply_batch(new)
    monkeypatch.setenv(ENV, "secret")
    worker(world, publisher).apply_batch(new)
    assert [each["ssn"] for each in rows(world)] == [keyed(777), keyed(777)]


@pytest.mark.parametrize("mode", ["follow", "stop"])
@pytest.mark.parametrize("kind", ["sha256", "null", "exclude"])
def test_a_rule_that_is_gone_without_a_copy(
    world: Subscribed, publisher: Publisher, kind: str, mode: str
) -> None:
    """A catalog made anew from a file without the rule."""
    publisher.shape = shape("id", "ssn", "v")
    lake_table(world, id=pa.int64(), ssn=pa.string(), v=pa.int32())
    rule = {"excluded": ("ssn",)} if kind == "exclude" else {"masks": (("ssn", kind, ""),)}
    world.declare("a", **rule)
    worker(world, publisher).apply_batch(batch([MESSAGE, Insert(1, row("1", "777", "10"))]))
    before = rows(world)
    world.declare("a", on_schema_change=mode)
    with pytest.raises(ReplicationError, match="has another rule") as caught:
        worker(world, publisher).apply_batch(
            batch([MESSAGE, Insert(1, row("2", "778", "20"))], after=100)
        )
    assert caught.value.code == "55000"
    assert rows(world) == before
    assert not world.rel("a").recopy


def test_a_type_with_another_text_has_the_table_copied_again(
    masked: Subscribed, publisher: Publisher
) -> None:
    """float4 to float8, for example; int4 to int8 is taken as one of these."""
    columns = publisher.shape.columns
    int8 = replace(columns[1].type, oid=20, typname="int8")
    retyped = replace(columns[1], typid=20, type=int8)
    publisher.shape = replace(publisher.shape, columns=(columns[0], retyped, columns[2]))
    sent = MESSAGE.columns
    message = replace(MESSAGE, columns=(sent[0], replace(sent[1], typid=20), sent[2]))
    changed: list[Any] = [message, Insert(1, row("2", "7", "20"))]
    with pytest.raises(ReplicationError, match="cannot be followed"):
        worker(masked, publisher).apply_batch(batch(changed, after=100))


def test_a_lake_column_that_is_no_text_is_refused(world: Subscribed, publisher: Publisher) -> None:
    lake_table(world, id=pa.int64(), ssn=pa.int32(), v=pa.int32())
    world.declare("a", masks=(("ssn", "sha256", ""),))
    with pytest.raises(ReplicationError) as caught:
        worker(world, publisher).apply_batch(batch([MESSAGE, Insert(1, row("1", "777", "10"))]))
    assert caught.value.code == "42804"
