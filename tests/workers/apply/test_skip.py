"""SKIP: one transaction, whole, once, wherever it lies in a batch and whoever dies around it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from catalog.errcodes import ConnectionFailure, ReplicationError
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_subscription_rel import SubRelState
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.apply.apply_batch import Applier
from workers.apply.skip import Skip, look_for_skip
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import LakeIdent
from workers.process import failpoints
from workers.proto.messages import Delete, Insert, Message, Truncate, Update

A = relation(1, "a", "id", "v")
B = relation(2, "b", "id", "v")
NAMES = {1: "a", 2: "b"}
TOO_LARGE = "99999999999"

STARTS = "logical replication starts skipping transaction at LSN"
COMPLETED = "logical replication completed skipping transaction at LSN"
CLEARED = 'skip-LSN of subscription "mysub" cleared'


def both(key: int, in_a: str = "0", in_b: str = "0") -> list[Message]:
    """A transaction that inserts a row into both tables."""
    return [A, B, Insert(1, row(str(key), in_a)), Insert(2, row(str(key), in_b))]


def finish(number: int) -> LSN:
    """Where transaction ``number`` of a batch finishes, counted from 0."""
    return LSN(100 * number + 99)


def ask(world: Subscribed, lsn: LSN) -> None:
    """ALTER SUBSCRIPTION … SKIP (lsn = …)."""
    world.store.update_subscription(world.sub.oid, subskiplsn=lsn)


def worker(world: Subscribed) -> Applier:
    """The next worker, which reads the subscription anew."""
    found = world.store.subscription(world.sub.oid)
    assert found is not None
    world.sub = found
    return world.worker()


def asked(world: Subscribed) -> LSN:
    found = world.store.subscription(world.sub.oid)
    assert found is not None
    return found.subskiplsn


def keys(world: Subscribed, name: str) -> list[int]:
    return [found[0] for found in world.rows(name)]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines about skipping, without what machines read."""
    lines = (record.getMessage() for record in caplog.records)
    return [re.sub(r"(\w+=\S+ )+", "", line) for line in lines if "action=skip" in line]


@pytest.mark.parametrize("at", range(4))
def test_a_transaction_is_left_out_of_every_table(
    world: Subscribed, caplog: pytest.LogCaptureFixture, at: int
) -> None:
    caplog.set_level(logging.INFO, "workers")
    ask(world, finish(at))
    poison = both(at, in_b=TOO_LARGE)
    transactions = [both(n) if n != at else poison for n in range(4)]
    worker(world).apply_batch(batch(*transactions))
    assert keys(world, "a") == keys(world, "b") == [n for n in range(4) if n != at]
    assert (world.position(), asked(world)) == (400, InvalidXLogRecPtr)
    assert said(caplog) == [f"{STARTS} {finish(at)}", f"{COMPLETED} {finish(at)}"]


def test_it_may_come_again_and_is_not_applied(world: Subscribed) -> None:
    """The publisher crashed, and forgot what was confirmed to it."""
    ask(world, finish(0))
    transactions = [both(7)]
    worker(world).apply_batch(batch(*transactions))
    assert asked(world) == InvalidXLogRecPtr
    worker(world).apply_batch(batch(*transactions, both(8)))
    assert keys(world, "a") == keys(world, "b") == [8]


def test_a_row_whose_delete_was_skipped_is_not_given_a_twin(world: Subscribed) -> None:
    worker(world).apply_batch(batch([A, Insert(1, row("1", "0"))]))
    ask(world, finish(1))
    again: list[Message] = [A, Insert(1, row("1", "5"))]
    with pytest.raises(ReplicationError) as caught:
        worker(world).apply_batch(batch([A, Delete(1, "K", row("1", ""))], again, after=100))
    assert caught.value.code == "23505"
    assert world.rows("a") == [(1, 0)]
    assert (world.rel("a").copied, world.rel("b").copied) == (False, True)


def test_a_skipped_truncate_empties_nothing(world: Subscribed) -> None:
    ask(world, finish(1))
    truncate: list[Message] = [A, Truncate(False, False, (1,))]
    worker(world).apply_batch(batch(both(1), truncate, [A, Insert(1, row("2", "0"))]))
    assert keys(world, "a") == [1, 2]


def test_relations_in_it_are_still_known_afterwards(world: Subscribed) -> None:
    ask(world, finish(0))
    turned = relation(1, "a", "v", "id")
    skipped: list[Message] = [turned, Insert(1, row("9", "9"))]
    worker(world).apply_batch(batch(skipped, [Insert(1, row("5", "1"))]))
    assert world.rows("a") == [(1, 5)]


def test_one_that_changes_no_table_of_ours_moves_the_origin(world: Subscribed) -> None:
    ask(world, finish(0))
    other = relation(3, "other", "id", "v")
    worker(world).apply_batch(batch([other, Insert(3, row("1", "1"))]))
    assert (world.position(), asked(world)) == (100, InvalidXLogRecPtr)


def test_a_position_that_none_finishes_at_is_cleared_with_a_warning(
    world: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "workers")
    ask(world, LSN(150))
    applier = worker(world)
    applier.apply_batch(batch(both(0)))
    assert asked(world) == 150, "it may still come"
    applier.apply_batch(batch([], after=100))
    assert asked(world) == 150, "an empty transaction is none to skip"
    applier.apply_batch(batch(both(1), after=200))
    assert (world.position(), asked(world)) == (300, InvalidXLogRecPtr)
    assert keys(world, "a") == [0, 1]
    assert said(caplog) == [CLEARED]
    (warning,) = (each for each in caplog.records if each.levelno == logging.WARNING)
    assert warning.__dict__["DETAIL"] == (
        "Remote transaction's finish WAL location (LSN) 0/12B did not match skip-LSN 0/96."
    )


def test_what_was_asked_for_meanwhile_stays(
    world: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    ask(world, finish(0))
    applier = worker(world)
    ask(world, finish(7))
    applier.apply_batch(batch(both(0), both(1)))
    assert keys(world, "a") == [1]
    assert asked(world) == finish(7)
    ask(world, LSN(50))
    applier = worker(world)
    ask(world, finish(7))
    applier.apply_batch(batch(both(2), after=200))
    assert asked(world) == finish(7)
    assert CLEARED not in caplog.text


def test_a_sync_worker_skips_and_leaves_it_to_the_apply_worker(world: Subscribed) -> None:
    ask(world, finish(0))
    applier = worker(world)
    rel = world.rel("a")
    applier.own_relid = rel.srrelid
    applier.rels["public", "a"] = rel
    writer = world.writer
    assert writer is not None
    writer.adopt_branch(rel, writer.open(rel).lake, _branch_of(world), InvalidXLogRecPtr)
    applier.apply_batch(batch(both(1), both(2)))
    assert [r["id"] for r in _branch_rows(world)] == [2]
    assert (asked(world), world.position()) == (finish(0), 0)
    assert not applier.rels["public", "a"].copied
    assert rel.srsubstate is SubRelState.READY


def _branch_of(world: Subscribed) -> str:
    MemoryDestination(world.lake).create_branch(LakeIdent("public", "a"), "pgsub_copy")
    return "pgsub_copy"


def _branch_rows(world: Subscribed) -> Sequence[dict[str, int]]:
    table = world.lake.tables[LakeIdent("public", "a")]
    return table.snapshots[table.refs["pgsub_copy"]].rows


@pytest.mark.parametrize(
    ("subskiplsn", "found"),
    [
        (0, None),
        (99, Skip(LSN(99), txn=0)),
        (199, Skip(LSN(199), txn=1)),
        (100, Skip(LSN(100), passed=LSN(299))),
        (300, None),
    ],
)
def test_look_for_skip(subskiplsn: int, found: Skip | None) -> None:
    received = batch(both(0), [], both(1))
    assert look_for_skip(LSN(subskiplsn), received) == found


# Random histories


@dataclass(slots=True)
class History:
    """What a publisher did to its two tables, transaction by transaction.

    With ``overwrite`` an INSERT takes the place of a row in its way. Else there is no TRUNCATE:
    what a batch does to a table before it is not looked at, so which row is in the way of what
    would depend on where batches are cut.
    """

    overwrite: bool
    transactions: list[list[Message]] = field(default_factory=list)

    def without(self, skipped: int) -> tuple[dict[str, dict[int, int]], list[int]]:
        """A subscriber's rows that skips this one and all that stop it; those that do."""
        tables: dict[str, dict[int, int]] = {"a": {}, "b": {}}
        stops = []
        for number, messages in enumerate(self.transactions):
            tried = {name: dict(rows) for name, rows in tables.items()}
            if number == skipped:
                continue
            if all(self._applied(tried, message) for message in messages):
                tables = tried
            else:
                stops.append(number)
        return tables, stops

    def _applied(self, tables: dict[str, dict[int, int]], message: Message) -> bool:
        """Apply one change as PostgreSQL does; False if a row is in its way."""
        if isinstance(message, Truncate):
            tables[NAMES[message.relids[0]]].clear()
        elif isinstance(message, Insert | Update):
            rows = tables[NAMES[message.relid]]
            key, value = (int(column.value or b"") for column in message.new)
            if isinstance(message, Insert) and key in rows and not self.overwrite:
                return False
            if isinstance(message, Insert) or key in rows:
                rows[key] = value
        elif isinstance(message, Delete):
            tables[NAMES[message.relid]].pop(int(message.old[0].value or b""), None)
        return True


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Changes that a publisher can have made: no row in the way, none missing."""
    history = History(draw(st.booleans()))
    tables: dict[int, dict[int, int]] = {1: {}, 2: {}}
    change = st.tuples(
        st.integers(1, 2),
        st.integers(0, 3),
        st.integers(0, 99),
        st.sampled_from("UUDDT" if history.overwrite else "UD"),
    )
    for changes in draw(st.lists(st.lists(change, max_size=4), min_size=1, max_size=6)):
        messages: list[Message] = [A, B]
        for relid, key, value, kind in changes:
            rows = tables[relid]
            if kind == "T":
                messages.append(Truncate(False, False, (relid,)))
                rows.clear()
            elif key not in rows:
                messages.append(Insert(relid, row(str(key), str(value))))
                rows[key] = value
            elif kind == "U":
                messages.append(Update(relid, None, None, row(str(key), str(value))))
                rows[key] = value
            else:
                messages.append(Delete(relid, "K", row(str(key), "")))
                del rows[key]
        history.transactions.append(messages)
    return history


@contextmanager
def dying(after: Sequence[int]) -> Iterator[None]:
    """A worker dies when it has lived through so many places, then another one, and so on."""
    left = list(after)
    lived = 0

    def reach(_name: str) -> None:
        nonlocal lived
        lived += 1
        if left and lived > left[0]:
            lived = 0
            left.pop(0)
            raise ConnectionFailure("died")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "reach", reach)
        yield


def replicate(
    world: Subscribed, history: History, cut: Callable[[int], int], from_start: bool
) -> list[int]:
    """Until everything is applied; the transactions that stopped a worker, skipped one by one."""
    stopped: list[int] = []
    while True:
        error = end_of_worker(world, history, cut, from_start)
        if error is None:
            return stopped
        if error.code == "23505":
            match = re.search(r"finished at (\S+)$", error.context[0])
            assert match is not None
            ask(world, LSN.parse(match.group(1)))
            stopped.append(int(LSN.parse(match.group(1))) // 100)
        else:
            assert error.primary == "died"


def end_of_worker(
    world: Subscribed, history: History, cut: Callable[[int], int], from_start: bool
) -> ReplicationError | None:
    """What ended a worker; None when all is applied."""
    try:
        applier = worker(world)
        received = batch(*history.transactions)
        first = 0 if from_start else int(world.position()) // 100
        while first < received.ntxns:
            last = min(first + cut(first), received.ntxns)
            applier.apply_batch(received.part(first, last))
            first = last
    except ReplicationError as error:
        return error
    return None


@settings(
    deadline=None,
    max_examples=60,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
@given(
    history=histories(),
    at=st.integers(0, 5),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    deaths=st.lists(st.integers(0, 12), max_size=4),
    from_start=st.booleans(),
)
def test_skipped_whole_and_once_wherever_workers_die(
    history: History, at: int, sizes: list[int], deaths: list[int], from_start: bool
) -> None:
    """Also where the publisher sends everything again; what stops a worker is skipped then."""
    world = Subscribed()
    try:
        if history.overwrite:
            for name in NAMES.values():
                world.declare(name, on_key_conflict="overwrite")
        at %= len(history.transactions)
        ask(world, finish(at))
        expected, stops = history.without(at)
        with dying(deaths):
            stopped = replicate(world, history, lambda n: sizes[n % len(sizes)], from_start)
        for name, rows in expected.items():
            assert world.rows(name) == sorted(rows.items())
        assert stopped == stops
        assert asked(world) == InvalidXLogRecPtr
        assert not world.store.in_flight(world.sub.oid)
    finally:
        world.close()
