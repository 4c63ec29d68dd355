"""Each of PostgreSQL's errors at CREATE, ALTER and DROP SUBSCRIPTION, by each way it can be asked.

SQL text, the command line (``pgsub create`` of a file that is new, ``alter``, ``drop``), and the
file that ``up`` brings a subscription in line with. Where a way cannot say it, ``CANNOT`` says why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from catalog.errcodes import ConnectionFailure
from config.load import from_stored
from tests.subscriber.statements import CONNECTION, OFFLINE
from tests.subscriber.twins import Around, WorkerTwin
from tests.subscriber.ways import Ask, alter, both, create, drop, sql, up
from workers.publication import Row

Arrange = Callable[[Around], object]

CODES: Final = [
    *(f"C-{n}" for n in range(1, 19)),
    *(f"A-{n}" for n in range(1, 16)),
    *(f"D-{n}" for n in range(1, 6)),
]
WAYS: Final = ("sql", "command", "file")
CREATE: Final = "CREATE SUBSCRIPTION t CONNECTION 'dbname=nowhere'"


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
    object.__setattr__(world.site, "connect", _Listing(world, exec_).connect)


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


# -- errors --------------------------------------------------------------------------------------

ERRORS: Final[list[tuple[str, str, str, dict[str, Ask]]]] = [
    (
        "C-1",
        "42601",
        "conflicting or redundant options",
        {
            "sql": sql(f"{OFFLINE}, connect = false)"),
            **both("publication: p, with: {connect: false, connect: false}"),
        },
    ),
    (
        "C-2",
        "42601",
        'unrecognized subscription parameter: "nosuch"',
        {"sql": sql(f"{OFFLINE}, nosuch = 1)"), **both("publication: p, with: {nosuch: 1}")},
    ),
    *(
        (
            "C-3",
            "42601",
            f"connect = false and {name} = true are mutually exclusive options",
            {
                "sql": sql(f"{OFFLINE}, {name} = true)"),
                **both(f"publication: p, with: {{connect: false, {name}: true}}"),
            },
        )
        for name in ("enabled", "create_slot", "copy_data")
    ),
    (
        "C-4",
        "42601",
        "subscription with slot_name = NONE must also set enabled = false",
        {
            "sql": sql(f"{CREATE} PUBLICATION p WITH (slot_name = NONE)"),
            **both("publication: p, with: {slot_name: NONE}"),
        },
    ),
    (
        "C-5",
        "25001",
        "CREATE SUBSCRIPTION ... WITH (create_slot = true) cannot run inside a transaction",
        {"sql": sql(f"BEGIN; {CREATE} PUBLICATION p")},
    ),
    (
        "C-7",
        "42501",
        "password_required=false is superuser-only",
        {
            "sql": sql(f"{OFFLINE}, password_required = false)"),
            **both("publication: p, with: {connect: false, password_required: false}"),
        },
    ),
    (
        "C-8",
        "42710",
        'subscription "s" already exists',
        {
            "sql": sql(f"CREATE SUBSCRIPTION s {CONNECTION} WITH (connect = false)"),
            "command": create("publication: p, with: {connect: false}", name="s"),
        },
    ),
    (
        "C-9",
        "42601",
        'invalid connection string syntax: invalid connection option "nosuch"',
        {
            "sql": sql("CREATE SUBSCRIPTION t CONNECTION 'nosuch=1' PUBLICATION p"),
            **both("publication: p", connection="nosuch=1"),
        },
    ),
    (
        "C-9",
        "2F003",
        "password is required",
        {"sql": sql(f"{CREATE} PUBLICATION p"), **both("publication: p")},
    ),
    (
        "C-10",
        "42710",
        'publication name "p" used more than once',
        {"sql": sql(f"{CREATE} PUBLICATION p, q, P"), **both("publication: [p, q, p]")},
    ),
    (
        "C-11",
        "22023",
        'unrecognized origin value: "some"',
        {
            "sql": sql(f"{OFFLINE}, origin = some)"),
            **both("publication: p, with: {origin: some}"),
        },
    ),
    (
        "C-12",
        "42601",
        'streaming requires a Boolean value or "parallel"',
        {
            "sql": sql(f"{OFFLINE}, streaming = maybe)"),
            **both("publication: p, with: {streaming: maybe}"),
        },
    ),
    (
        "C-13",
        "22023",
        'invalid value for parameter "synchronous_commit": "never"',
        {
            "sql": sql(f"{OFFLINE}, synchronous_commit = never)"),
            **both("publication: p, with: {synchronous_commit: never}"),
        },
    ),
    (
        "C-14",
        "08006",
        "could not connect to the publisher",
        {"sql": sql(f"{CREATE} PUBLICATION p"), **both("publication: p")},
    ),
    (
        "C-16",
        "0A000",
        'cannot use different column lists for table "public.a" in different publications',
        {"sql": sql(f"{CREATE} PUBLICATION p, q"), **both("publication: [p, q]")},
    ),
    (
        "A-1",
        "42704",
        'subscription "t" does not exist',
        {"sql": sql("ALTER SUBSCRIPTION t ENABLE"), "command": alter("t", "ENABLE")},
    ),
    (
        "A-1",
        "42501",
        "password_required=false is superuser-only",
        {
            "sql": sql("ALTER SUBSCRIPTION s SET (binary)"),
            "command": alter("s", "SET", "(binary)"),
            "file": up(
                "publication: p, with: {connect: false, slot_name: NONE, binary: true,"
                " password_required: false}",
                name="s",
            ),
        },
    ),
    (
        "A-2",
        "55000",
        "cannot set slot_name = NONE for enabled subscription",
        {
            "sql": sql("ALTER SUBSCRIPTION enabled SET (slot_name = NONE)"),
            "command": alter("enabled", "SET", "(slot_name", "=", "NONE)"),
        },
    ),
    (
        "A-3",
        "55000",
        'cannot set option "failover" for enabled subscription',
        {
            "sql": sql("ALTER SUBSCRIPTION enabled SET (failover)"),
            "command": alter("enabled", "SET", "(failover)"),
            "file": up("publication: [p, r], with: {slot_name: y, failover: true}", name="enabled"),
        },
    ),
    (
        "A-4",
        "55000",
        'cannot set option "failover" for a subscription that does not have a slot name',
        {
            "sql": sql("ALTER SUBSCRIPTION s SET (failover)"),
            "command": alter("s", "SET", "(failover)"),
            "file": up(
                "publication: p, with: {connect: false, slot_name: NONE, failover: true}",
                name="s",
            ),
        },
    ),
    (
        "A-5",
        "42601",
        '"slot_name" and "two_phase" cannot be altered at the same time',
        {
            "sql": sql("ALTER SUBSCRIPTION with_slot SET (slot_name = other, two_phase = off)"),
            "command": alter("with_slot", "SET", "(slot_name=other,", "two_phase=off)"),
        },
    ),
    (
        "A-6",
        "55000",
        'cannot alter "two_phase" when logical replication worker is still running',
        {
            "sql": sql("ALTER SUBSCRIPTION with_slot SET (two_phase = off)"),
            "command": alter("with_slot", "SET", "(two_phase", "=", "off)"),
        },
    ),
    (
        "A-8",
        "55000",
        "cannot enable subscription that does not have a slot name",
        {"sql": sql("ALTER SUBSCRIPTION s ENABLE"), "command": alter("s", "ENABLE")},
    ),
    (
        "A-9",
        "55000",
        "ALTER SUBSCRIPTION ... REFRESH is not allowed for disabled subscriptions",
        {
            "sql": sql("ALTER SUBSCRIPTION s REFRESH PUBLICATION"),
            "command": alter("s", "REFRESH", "PUBLICATION"),
        },
    ),
    (
        "A-11",
        "25001",
        "ALTER SUBSCRIPTION ... REFRESH cannot run inside a transaction block",
        {"sql": sql("BEGIN; ALTER SUBSCRIPTION enabled REFRESH PUBLICATION")},
    ),
    (
        "A-12",
        "42710",
        'publication "p" is already in subscription "enabled"',
        {
            "sql": sql("ALTER SUBSCRIPTION enabled ADD PUBLICATION q, p"),
            "command": alter("enabled", "ADD", "PUBLICATION", "q,", "p"),
        },
    ),
    (
        "A-12",
        "42P17",
        'publication "q" is not in subscription "enabled"',
        {
            "sql": sql("ALTER SUBSCRIPTION enabled DROP PUBLICATION q"),
            "command": alter("enabled", "DROP", "PUBLICATION", "q"),
        },
    ),
    (
        "A-12",
        "42P17",
        "cannot drop all the publications from a subscription",
        {
            "sql": sql("ALTER SUBSCRIPTION enabled DROP PUBLICATION r, p"),
            "command": alter("enabled", "DROP", "PUBLICATION", "r,p"),
        },
    ),
    (
        "A-13",
        "22023",
        "invalid WAL location (LSN): 0/0",
        {
            "sql": sql("ALTER SUBSCRIPTION s SKIP (lsn = '0/0')"),
            "command": alter("s", "SKIP", "(lsn", "=", "'0/0')"),
        },
    ),
    (
        "A-14",
        "42601",
        'invalid connection string syntax: invalid connection option "nosuch"',
        {
            "sql": sql("ALTER SUBSCRIPTION s CONNECTION 'nosuch=1'"),
            "command": alter("s", "CONNECTION", "nosuch=1"),
            "file": up("publication: p", name="s", connection="nosuch=1"),
        },
    ),
    *(
        (
            "A-15",
            "42601",
            f'unrecognized subscription parameter: "{name}"',
            {
                "sql": sql(f"ALTER SUBSCRIPTION s SET ({name} = true)"),
                "command": alter("s", "SET", f"({name}=true)"),
            },
        )
        for name in ("create_slot", "connect", "enabled", "copy_data")
    ),
    (
        "D-1",
        "25001",
        "DROP SUBSCRIPTION cannot run inside a transaction block",
        {"sql": sql("BEGIN; DROP SUBSCRIPTION with_slot")},
    ),
    (
        "D-2",
        "08006",
        "could not connect to publisher when attempting to drop replication slot",
        {"sql": sql("DROP SUBSCRIPTION with_slot"), "command": drop("with_slot")},
    ),
    (
        "D-4",
        "08006",
        'could not drop replication slot "x" on publisher',
        {"sql": sql("DROP SUBSCRIPTION with_slot"), "command": drop("with_slot")},
    ),
]
"""Code, SQLSTATE, what is said, and the ways."""

BEFORE: Final[dict[str, Arrange]] = {
    "password_required=false is superuser-only": without_password_required,
    "password is required": no_superuser,
    "could not connect to the publisher": unreachable,
    'cannot use different column lists for table "public.a" in different publications': (
        different_lists
    ),
    'cannot alter "two_phase" when logical replication worker is still running': running,
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


MISSING: Final = 'publications "x", "y" do not exist on the publisher'
ORIGINS: Final = "requested copy_data with origin = NONE"
WARNINGS: Final[list[tuple[str, Arrange, str, dict[str, Ask]]]] = [
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
]
"""What is no error: what has to be so before, and the warning, if there is one."""

NOTHING_LIKE_IT: Final = {
    "C-6": "there are no roles; is_superuser is the one difference between owners",
    "C-15": "a table that is not there is made; its columns are checked when it is adopted",
    "A-7": "two_phase = true is refused, so no transaction is ever prepared",
    "A-10": "two_phase = true is refused, so that state is never e",
    "D-5": "DROP TABLE is the lake's; the apply worker's next change of it is 42P01",
}
CANNOT: Final = {
    ("C-5", "command"): "a command is no transaction block",
    ("C-5", "file"): "nor is a file",
    ("C-8", "file"): "what exists is brought in line",
    ("A-1", "file"): "what does not exist is made",
    ("A-2", "file"): "slot_name: NONE wants enabled: false beside it (C-4)",
    ("A-5", "file"): "a file says what is to be: two_phase: false is so already",
    ("A-6", "file"): "a file says what is to be: two_phase: false is so already",
    ("A-8", "file"): "slot_name: NONE wants enabled: false beside it (C-4)",
    ("A-9", "file"): "what is disabled is refreshed when it is enabled",
    ("A-11", "command"): "a command is no transaction block",
    ("A-11", "file"): "nor is a file",
    ("A-12", "file"): "a file has the whole list",
    ("A-13", "file"): "a file skips nothing",
    ("A-15", "file"): "a file has what CREATE takes",
    ("D-1", "command"): "a command is no transaction block",
    ("D-1", "file"): "a file drops nothing",
    ("D-2", "file"): "a file drops nothing",
    ("D-3", "file"): "a file drops nothing",
    ("D-4", "file"): "a file drops nothing",
}
