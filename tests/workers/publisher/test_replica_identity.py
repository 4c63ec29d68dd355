"""Relations that announce only a part of their replica identity, from the publisher's answer to
the lake in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from tests.workers.publisher.scripted import ScriptedPublisher
from tests.workers.subscribed import FINGERPRINT as FOUND
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.lake.memory.destination import MemoryDestination
from workers.proto.messages import (
    ColumnStatus,
    Delete,
    Insert,
    Message,
    Relation,
    RelationColumn,
    TupleColumn,
    Update,
)
from workers.publisher.replica_identity import (
    OTHER_LEAF,
    Coverage,
    Identities,
    coverage,
    fetch_identities,
)

A = relation(1, "a", "id", "v")
NULL = TupleColumn(ColumnStatus.NULL)
PART = {"id": True, "number": False}
"""PRIMARY KEY (id, number), and a column list (id, v) or a number that is generated."""

Identity = Mapping[str, bool]


def i(key: int, value: int) -> Message:
    return Insert(1, row(str(key), str(value)))


@pytest.mark.parametrize(
    ("columns", "flagged", "identity", "found"),
    [
        ("abc", "a", {"a": True}, Coverage.WHOLE),
        ("abc", "ab", {"b": True, "a": True}, Coverage.WHOLE),
        ("abc", "ab", {"a": True, "b": True, OTHER_LEAF: False}, Coverage.WHOLE),
        ("abc", "a", {OTHER_LEAF: False}, Coverage.UNKNOWN),
        ("abc", "a", {"a": False}, Coverage.WHOLE),  # the list has come to leave it out since
        ("ac", "a", {"a": True, "b": False}, Coverage.PART),
        ("abc", "ab", {"a": True, "b": True, "g": False}, Coverage.PART),
        # b was sent then, and was no part of the key.
        ("abc", "a", {"a": True, "b": False}, Coverage.UNKNOWN),
        ("abc", "a", {"a": True, "b": False, "g": False}, Coverage.UNKNOWN),
        # The key, or the list, has grown since.
        ("abc", "a", {"a": True, "b": True}, Coverage.UNKNOWN),
        ("ac", "a", {"a": True, "b": True}, Coverage.UNKNOWN),
        ("abc", "ab", {"a": True}, Coverage.UNKNOWN),
        ("abc", "ab", {"a": True, "b": False, "c": True}, Coverage.UNKNOWN),
        ("abc", "a", {"b": True}, Coverage.UNKNOWN),  # as many, but others
        ("abc", "a", {}, Coverage.UNKNOWN),
        ("abc", "a", None, Coverage.UNKNOWN),
    ],
)
def test_what_flags_are_of_the_identity_as_it_is_now(
    columns: str, flagged: str, identity: Identity | None, found: Coverage
) -> None:
    announced = tuple(RelationColumn(name in flagged, name, 23, -1) for name in columns)
    assert coverage(Relation(1, "public", "t", "d", announced), identity) is found


@pytest.mark.parametrize(
    ("version", "asks", "asks_not"),
    [
        (18, ["pubgencols", "prattrs", "attgenerated", "indnkeyatts"], []),
        (17, ["prattrs", "attgenerated = ''", "indnkeyatts"], ["pubgencols"]),
        (15, ["prattrs", "attgenerated = ''"], ["pubgencols"]),
        (14, ["attgenerated = ''", "indnkeyatts"], ["prattrs", "pubgencols"]),
        (11, ["indnkeyatts"], ["attgenerated", "prattrs"]),
        (10, ["ANY (i.indkey)"], ["indnkeyatts", "attgenerated"]),
    ],
)
def test_the_publisher_is_asked_by_version(
    version: int, asks: list[str], asks_not: list[str]
) -> None:
    answer: list[tuple[str | None, ...]] = [("7", "a", "t"), ("7", "b", "f"), ("9", "id", "t")]
    conn = ScriptedPublisher(version, {"pg_index": answer})
    assert fetch_identities(conn, ["it's"], {9, 7, 8}) == {
        7: {"a": True, "b": False},
        9: {"id": True},
    }
    [asked] = conn.asked
    assert "c.oid IN (7, 8, 9)" in asked
    assert [words for words in asks if words not in asked] == []
    assert [words for words in asks_not if words in asked] == []
    assert ("'it''s'" in asked) == (version >= 15)


def apply(world: Subscribed, *transactions: Sequence[Message], whole: bool = True) -> None:
    received = batch(*transactions)
    dest = MemoryDestination(world.lake)
    worker = world.worker(dest)
    size = received.ntxns if whole else 1
    try:
        for begin in range(0, received.ntxns, size):
            worker.apply_batch(received.part(begin, begin + size))
    finally:
        assert dest.staged == 0


cuts = pytest.mark.parametrize("whole", [True, False], ids=["one batch", "batch by batch"])


@cuts
@pytest.mark.parametrize("copied", [True, False], ids=["copied", "not copied"])
@pytest.mark.parametrize("declared", [None, "error", "overwrite"])
def test_rows_that_share_a_part_of_their_identity_stay(
    world: Subscribed, declared: str | None, copied: bool, whole: bool
) -> None:
    """How a row was lost, with ``overwrite``::

        publisher  PRIMARY KEY (id, number), published (id, v), inserts only
                   rows (1, 1, 10) and (1, 2, 20)
        announced  id*, v: one flag, so id was taken for the whole key
        I (1, 10)  appended
        I (1, 20)  id 1 is looked for and found: the row takes the place of (1, 10), which is gone

    Declared otherwise, or not at all, the second row stopped the subscription with insert_exists.
    """
    world.declare("a", on_key_conflict=declared)
    world.identity = PART
    world.put("a", (1, 5), ours=True)
    if not copied:
        world.distrust("a")
    apply(world, [A, i(1, 10), i(1, 20)], [i(1, 20), i(2, 30)], whole=whole)
    assert world.rows("a") == [(1, 5), (1, 10), (1, 20), (1, 20), (2, 30)]
    assert world.rel("a").copied == copied


@cuts
@pytest.mark.parametrize(
    "change",
    [
        Update(1, None, None, row("1", "11")),
        Update(1, "K", (*row("1"), NULL), row("2", "11")),
        Delete(1, "K", (*row("1"), NULL)),
    ],
)
def test_a_change_that_a_part_of_the_identity_is_to_find_stops(
    world: Subscribed, change: Message, whole: bool
) -> None:
    """Before version 18 PostgreSQL sends it where the identity has a generated column."""
    world.identity = PART
    with pytest.raises(ReplicationError) as caught:
        apply(world, [A, i(1, 10)], [i(1, 20), change], [i(3, 30)], whole=whole)
    error = caught.value
    assert (error.code, world.position(), world.rows("a")) == ("55000", 100, [(1, 10)])
    assert error.primary == (
        "publisher did not send replica identity column expected by the logical replication "
        'target relation "public.a"'
    )
    order = ["Disable", "On the publisher", "--recopy public.a", "enable the subscription"]
    at = [(error.hint or "").index(words) for words in order]
    assert at == sorted(at)
    assert error.context[0].endswith("in transaction 2, finished at 0/C7")


WHOLE = {"id": True}
D_K = Delete(1, "K", (*row("1"), NULL))


@pytest.mark.parametrize("declared", [None, "error", "overwrite"])
@pytest.mark.parametrize("identity", [WHOLE, None], ids=["another key", "full"])
def test_what_was_refused_is_not_taken_for_a_whole_key_later(
    world: Subscribed, identity: Identity | None, declared: str | None
) -> None:
    """How a row was lost by following the hint without copying the table again::

    publisher  PRIMARY KEY (id, number), number generated; row (1, 1, 10)
    received   I (1, 20)  D K(1), of the row (1, 1, 10)      refused: id is a part of the key
    publisher  PRIMARY KEY (id), or REPLICA IDENTITY FULL    {(1, 20)}
    once more  id is taken for a key: by ``copied`` nothing has it, so the two changes are of
               one row, which is not there after them        lake {(1, 10)}
               with overwrite (1, 20) takes its place, and is deleted: lake {}
    """
    world.declare("a", on_key_conflict=declared)
    world.identity = PART
    world.put("a", (1, 10), ours=True)
    received: list[Message] = [A, Insert(2, row("5", "50")), i(1, 20), D_K]
    with pytest.raises(ReplicationError, match="did not send replica identity"):
        apply(world, [relation(2, "b", "id", "v")], received)
    assert (world.rel("a").copied, world.rel("b").copied) == (False, True)
    world.identity = dict(identity) if identity else None
    for _ in range(2):
        with pytest.raises(ReplicationError) as caught:
            apply(world, [relation(2, "b", "id", "v")], received)
        assert (caught.value.code, world.rows("a"), world.rows("b")) == ("23505", [(1, 10)], [])
        assert "overwrite" not in (caught.value.hint or "")
    world.identity = WHOLE
    world.store.update_rel(world.sub.oid, world.rel("a").srrelid, copied=True, fingerprint=FOUND)
    apply(world, [A, i(2, 20), D_K])
    assert world.rows("a") == [(2, 20)]


def test_nor_when_the_publisher_is_changed_before_it_is_tried_alone(world: Subscribed) -> None:
    """The batch is cut before the transaction that was refused, and the publisher asked again."""
    world.declare("a", on_key_conflict="overwrite")
    world.put("a", (1, 10), ours=True)
    answers = [PART, WHOLE, WHOLE]
    worker = world.worker()
    worker.checks.identities = lambda relids: dict.fromkeys(relids, answers.pop(0))
    with pytest.raises(ReplicationError) as caught:
        worker.apply_batch(batch([A, i(7, 70)], [A, i(1, 20), D_K]))
    assert (caught.value.code, world.rows("a")) == ("23505", [(1, 10), (7, 70)])


UNKNOWN: list[Identity | None] = [None, {"other": True}, {"id": True, "number": True}]
unknown = pytest.mark.parametrize("identity", UNKNOWN, ids=["gone", "another", "grown"])


@unknown
def test_what_is_not_known_to_be_whole_overwrites_nothing(
    world: Subscribed, identity: Identity | None
) -> None:
    """The relation was announced before the publisher's table was changed to what it is now."""
    world.declare("a", on_key_conflict="overwrite")
    world.identity = dict(identity) if identity else None
    world.put("a", (1, 10), ours=True)
    with pytest.raises(ReplicationError) as caught:
        apply(world, [A, i(2, 20)], [i(3, 30), i(1, 11)])
    error = caught.value
    assert (error.code, world.position()) == ("23505", 100)
    assert world.rows("a") == [(1, 10), (2, 20)]
    assert "whole replica identity is not known" in (error.detail or "")
    assert "--recopy" in (error.hint or "")
    assert "overwrite" not in (error.hint or "")


@unknown
def test_nor_does_it_stop_what_meets_nothing(world: Subscribed, identity: Identity | None) -> None:
    """A primary key that was moved a moment ago, or a table that was dropped, is nothing rare."""
    world.declare("a", on_key_conflict="overwrite")
    world.identity = dict(identity) if identity else None
    world.put("a", (1, 10), (5, 50), ours=True)
    changed, deleted = Update(1, None, None, row("1", "11")), Delete(1, "K", (*row("5"), NULL))
    apply(world, [A, changed, deleted, i(2, 20)])
    assert world.rows("a") == [(1, 11), (2, 20)]


def test_the_part_may_be_declared_a_key_of_the_lake_table(world: Subscribed) -> None:
    world.declare("a", keys=(("id",),))
    world.identity = PART
    world.put("a", (1, 10), ours=True)
    with pytest.raises(ReplicationError) as caught:
        apply(world, [A, i(2, 20)], [i(1, 11)])
    assert (caught.value.code, world.rows("a")) == ("23505", [(1, 10), (2, 20)])
    assert caught.value.detail == 'Key (id) already exists in lake table "public.a".'


class Asked(Subscribed):
    """Counts what the publisher is asked."""

    relids: list[set[int]]

    def identities(self, relids: Collection[int]) -> Identities:
        self.relids.append(set(relids))
        return Subscribed.identities(self, relids)


@pytest.fixture
def asked() -> Iterator[Asked]:
    made = Asked()
    made.relids = []
    yield made
    made.close()


def test_it_is_asked_when_a_relation_with_a_key_is_announced(asked: Asked) -> None:
    keyless = relation(2, "b", "id", "v", key="none")
    full = relation(2, "b", "id", "v", identity="f")
    into_b = Insert(2, row("1", "0"))
    received = batch([A, i(1, 0)], [i(2, 0)], [keyless, into_b], [full, into_b], [A, i(3, 0)])
    worker = asked.worker()
    for txn in range(received.ntxns):
        worker.apply_batch(received.part(txn, txn + 1))
    assert asked.relids == [{1}, {2}, {1}]


def test_and_again_though_the_announcement_is_the_same(asked: Asked) -> None:
    """The primary key grew by a column that is not listed: the flags are what they were."""
    asked.declare("a", on_key_conflict="overwrite")
    received = batch([A, i(1, 10)], [i(1, 11)], [A, i(1, 12)])
    worker = asked.worker()
    worker.apply_batch(received.part(0, 2))
    assert asked.rows("a") == [(1, 11)]
    asked.identity = PART
    worker.apply_batch(received.part(2, 3))
    assert asked.rows("a") == [(1, 11), (1, 12)]


def test_an_announcement_that_a_table_does_not_take_is_not_forgotten(asked: Asked) -> None:
    """Its transaction comes before the table joined; the change that does not is looked at."""
    asked.declare("a", on_key_conflict="overwrite")
    worker = asked.worker()
    worker.apply_batch(batch([A, i(1, 10)]))
    asked.identity = PART
    rel = asked.store.update_rel(asked.sub.oid, asked.rel("a").srrelid, floor=LSN(200))
    worker.read_rels()
    worker.writer._tables._tables.pop(rel.srrelid)
    received = batch([A, i(1, 11)], [i(1, 12)], after=100)
    worker.apply_batch(received.part(0, 1))
    worker.apply_batch(received.part(1, 2))
    assert asked.rows("a") == [(1, 10), (1, 12)]
