"""Each of PostgreSQL's errors at CREATE, ALTER and DROP SUBSCRIPTION, by each way it can be asked.

SQL text, the command line (``pgsub create`` of a file that is new, ``alter``, ``drop``), and the
file that ``up`` brings a subscription in line with. Where a way cannot say it, ``CANNOT`` says why.
The SQL text of each is put to a real server, too (``test_sql_text``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from catalog.errcodes import ConnectionFailure
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import TwoPhaseState
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from config.load import from_stored
from tests.subscriber.bad_alter import ALTER_ERRORS, IN_A_BLOCK, OF_NO_SLOT
from tests.subscriber.bad_create import CREATE, CREATE_ERRORS
from tests.subscriber.twins import Around, Slot, WorkerTwin
from tests.subscriber.ways import Ask, both, drop, sql
from tests.workers.prepared import keep
from workers.publisher.interfaces import Row
from workers.stream.prepared_groups import PreparedXact
from workers.stream.prepared_xacts import PreparedXacts

Arrange = Callable[[Around], object]

CODES: Final = [
    *(f"C-{n}" for n in range(1, 19)),
    *(f"A-{n}" for n in range(1, 16)),
    *(f"D-{n}" for n in range(1, 6)),
]
WAYS: Final = ("sql", "command", "file")

ERRORS: Final = [*CREATE_ERRORS, *ALTER_ERRORS]
"""Code, SQLSTATE, what is said, and the ways."""


# -- what has to be so before --------------------------------------------------------------------


def no_superuser(world: Around) -> None:
    world.store.put_settings(from_stored({"settings": {"is_superuser": False}}).stored())


def without_password_required(world: Around) -> None:
    sub = world.store.subscription_by_name("s")
    assert sub is not None
    world.store.update_subscription(sub.oid, subpasswordrequired=False)
    no_superuser(world)


def unreachable(world: Around) -> None:
    world.publisher.fail["connect"] = ConnectionFailure("could not connect to the publisher")


def different_lists(world: Around) -> None:
    """Publications p and q have other columns of one table."""
    answer = world.publisher.exec

    def exec_(sql: str) -> list[Row]:
        if "VARIADIC" in sql:
            return [("public", "a", "1 2"), ("public", "a", "1")]
        return answer(sql)

    world.publisher.publications = ("p", "q")
    object.__setattr__(world.context, "connect", _Listing(world, exec_).connect)


class _Listing:
    """A publisher that answers queries in another way."""

    def __init__(self, world: Around, exec_: Callable[[str], list[Row]]) -> None:
        self._world, self.exec = world, exec_

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.publisher, name)

    def connect(self, sub: Any) -> _Listing:
        self._world.publisher.connect(sub)
        return self


def running(world: Around) -> None:
    sub = world.store.subscription_by_name("with_slot")
    assert sub is not None
    world.workers[:] = [[WorkerTwin(sub.oid)]]


def two_phase_enabled(world: Around) -> None:
    for sub in world.store.subscriptions():
        world.store.update_subscription(sub.oid, subtwophasestate=TwoPhaseState.ENABLED)


def has_prepared(world: Around) -> None:
    two_phase_enabled(world)
    sub = world.store.subscription_by_name("with_slot")
    assert sub is not None
    xact = PreparedXact("gid", 7, LSN(1), LSN(2), 0)
    keep(PreparedXacts(world.context.data_dir, sub.subuuid, sub.oid), xact)


def _unfinished(world: Around, name: str) -> None:
    """A synchronisation with a permanent slot, which the publisher does not have."""
    sub = world.store.subscription_by_name(name)
    assert sub is not None
    world.store.update_subscription(sub.oid, **world.publisher.identity.stored())
    rel = SubscriptionRel(sub.oid, 0, SubRelState.INIT, None, *("public", "a") * 2)
    world.store.origin_create(origin_name(sub.oid, world.store.insert_rel(rel).srrelid))


def unfinished_and_unreachable(world: Around) -> None:
    _unfinished(world, "s")
    unreachable(world)


def sync_slot_is_gone(world: Around) -> None:
    _unfinished(world, "with_slot")
    world.publisher.slots["x"] = Slot()


BEFORE: Final[dict[str, Arrange]] = {
    "password_required=false is superuser-only": without_password_required,
    "password is required": no_superuser,
    "could not connect to the publisher": unreachable,
    'cannot use different column lists for table "public.a" in different publications': (
        different_lists
    ),
    'cannot alter "two_phase" when logical replication worker is still running': running,
    'cannot disable "two_phase" when prepared transactions exist': has_prepared,
    "ALTER SUBSCRIPTION ... REFRESH with copy_data is not allowed when two_phase is enabled": (
        two_phase_enabled
    ),
    "ALTER SUBSCRIPTION with refresh and copy_data is not allowed when two_phase is enabled": (
        two_phase_enabled
    ),
    "could not connect to publisher when attempting to drop replication slot": unreachable,
}
"""What is done before an error, by what it says."""


IN_THE_FILE: Final = {
    said
    for code, sqlstate, said, _ in ERRORS
    if (code in ("C-1", "C-2", "C-3", "C-4", "C-10", "C-11", "C-12", "C-13"))
    or (code, sqlstate) == ("C-9", "42601")
}
"""What is seen to be wrong in a file before anybody is asked: status 2."""


def _publish(world: Around) -> None:
    world.publisher.publications = ("p",)


def _other_origin(world: Around) -> None:
    _publish(world)
    world.publisher.other_origins = [("public", "a", "p")]


MISSING_ONE: Final = 'publication "x" does not exist on the publisher'
MISSING: Final = 'publications "x", "y" do not exist on the publisher'
ORIGINS: Final = "requested copy_data with origin = NONE"
WARNINGS: Final[list[tuple[str, Arrange, str, dict[str, Ask]]]] = [
    (
        "C-17",
        _publish,
        MISSING_ONE,
        {"sql": sql(f"{CREATE} PUBLICATION p, x"), **both("publication: [p, x]")},
    ),
    (
        "C-17",
        _publish,
        MISSING,
        {"sql": sql(f"{CREATE} PUBLICATION x, p, y"), **both("publication: [x, p, y]")},
    ),
    (
        "C-18",
        _other_origin,
        ORIGINS,
        {
            "sql": sql(f"{CREATE} PUBLICATION p WITH (origin = none)"),
            **both("publication: p, with: {origin: none}"),
        },
    ),
    ("D-3", unreachable, "", {"sql": sql("DROP SUBSCRIPTION s"), "command": drop("s")}),
    (
        "D-3",
        unfinished_and_unreachable,
        "",
        {"sql": sql("DROP SUBSCRIPTION s"), "command": drop("s")},
    ),
    (
        "D-4",
        sync_slot_is_gone,
        "",
        {"sql": sql("DROP SUBSCRIPTION with_slot"), "command": drop("with_slot")},
    ),
]
"""What is no error: what has to be so before, and the warning, if there is one."""

NOTHING_LIKE_IT: Final = {
    "C-6": "there are no roles; is_superuser is the one difference between owners",
    "C-15": "a table that is not there is made; its columns are checked when it is adopted",
    "D-5": "DROP TABLE is the lake's; the apply worker's next change of it is 42P01",
}
NO_BLOCK: Final = "neither a command nor a file is a transaction block"
IS_OFF: Final = "a file says what is to be, and two_phase: false is so already (test_alter_to_file)"
CANNOT: Final = {
    ("C-5", "command"): NO_BLOCK,
    ("C-5", "file"): NO_BLOCK,
    ("C-8", "file"): "what exists is brought in line",
    ('subscription "t" does not exist', "file"): "what does not exist is made",
    ("A-2", "file"): "slot_name: NONE wants enabled: false beside it (C-4)",
    ('cannot set option "two_phase" for enabled subscription', "file"): IS_OFF,
    (f'cannot set option "two_phase" {OF_NO_SLOT}', "file"): IS_OFF,
    (f"ALTER SUBSCRIPTION ... SET (failover) {IN_A_BLOCK}", "command"): NO_BLOCK,
    (f"ALTER SUBSCRIPTION ... SET (failover) {IN_A_BLOCK}", "file"): NO_BLOCK,
    (f"ALTER SUBSCRIPTION ... SET (two_phase) {IN_A_BLOCK}", "command"): NO_BLOCK,
    (f"ALTER SUBSCRIPTION ... SET (two_phase) {IN_A_BLOCK}", "file"): NO_BLOCK,
    ("A-5", "file"): IS_OFF,
    ("A-6", "file"): IS_OFF,
    ("A-9", "file"): "up refreshes what is disabled, too",
    ("A-10", "file"): "up refreshes: the gate looks at COMMIT PREPARED, so a copy is safe",
    ("A-11", "command"): NO_BLOCK,
    ("A-11", "file"): NO_BLOCK,
    ("A-12", "file"): "a file has the whole list",
    ("A-13", "file"): "a file skips nothing",
    ("A-15", "file"): "a file has what CREATE takes",
    ("D-1", "command"): NO_BLOCK,
    ("D-1", "file"): "a file drops nothing",
    ("D-2", "file"): "a file drops nothing",
    ("D-3", "file"): "a file drops nothing",
    ("D-4", "file"): "a file drops nothing",
}
"""Why a way cannot ask for a code's conditions, or for the one that is said."""
