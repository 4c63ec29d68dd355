"""PostgreSQL's errors at ALTER and DROP SUBSCRIPTION: each condition of A-1 to A-15 and D-1 to D-4.

By each way to ask; ``test_execute.prepared`` has the subscriptions.
"""

from __future__ import annotations

from typing import Final

from tests.subscriber.ways import Ask, alter, drop, sql, up

OF_NO_SLOT: Final = "for a subscription that does not have a slot name"
IN_A_BLOCK: Final = "cannot run inside a transaction block"
REFRESHES: Final = "ALTER SUBSCRIPTION with refresh"


def altered(name: str, words: str) -> dict[str, Ask]:
    """ALTER SUBSCRIPTION by SQL text and by the command of that name."""
    return {
        "sql": sql(f"ALTER SUBSCRIPTION {name} {words}"),
        "command": alter(name, *words.split(" ")),
    }


def in_a_block(words: str) -> dict[str, Ask]:
    return {"sql": sql(f"BEGIN; {words}")}


ALTER_ERRORS: Final[list[tuple[str, str, str, dict[str, Ask]]]] = [
    ("A-1", "42704", 'subscription "t" does not exist', altered("t", "ENABLE")),
    (
        "A-1",
        "42704",
        'subscription "t" does not exist',
        {"sql": sql("DROP SUBSCRIPTION t"), "command": drop("t")},
    ),
    (
        "A-1",
        "42501",
        "password_required=false is superuser-only",
        {
            **altered("s", "SET (binary)"),
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
        altered("enabled", "SET (slot_name = NONE)"),
    ),
    (
        "A-3",
        "55000",
        'cannot set option "failover" for enabled subscription',
        {
            **altered("enabled", "SET (failover)"),
            "file": up("publication: [p, r], with: {slot_name: y, failover: true}", name="enabled"),
        },
    ),
    *(
        (
            "A-3",
            "55000",
            'cannot set option "two_phase" for enabled subscription',
            altered("enabled", f"SET (two_phase = {value})"),
        )
        for value in ("true", "false")
    ),
    (
        "A-4",
        "55000",
        f'cannot set option "failover" {OF_NO_SLOT}',
        {
            **altered("s", "SET (failover)"),
            "file": up(
                "publication: p, with: {connect: false, slot_name: NONE, failover: true}",
                name="s",
            ),
        },
    ),
    (
        "A-4",
        "55000",
        f'cannot set option "two_phase" {OF_NO_SLOT}',
        altered("s", "SET (two_phase = off)"),
    ),
    *(
        (
            "A-4",
            "25001",
            f"ALTER SUBSCRIPTION ... SET ({option}) {IN_A_BLOCK}",
            in_a_block(f"ALTER SUBSCRIPTION with_slot SET ({option} = false)"),
        )
        for option in ("failover", "two_phase")
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
    *(
        (
            "A-6",
            "55000",
            'cannot alter "two_phase" when logical replication worker is still running',
            altered("with_slot", f"SET (two_phase = {value})"),
        )
        for value in ("off", "on")
    ),
    (
        "A-7",
        "55000",
        'cannot disable "two_phase" when prepared transactions exist',
        {
            **altered("with_slot", "SET (two_phase = off)"),
            "file": up(
                "publication: [p, r], with: {enabled: false, slot_name: x, two_phase: false}",
                name="with_slot",
            ),
        },
    ),
    (
        "A-8",
        "55000",
        "cannot enable subscription that does not have a slot name",
        {
            **altered("s", "ENABLE"),
            "file": up("publication: p, with: {enabled: true}", name="s"),
        },
    ),
    (
        "A-9",
        "55000",
        "ALTER SUBSCRIPTION ... REFRESH is not allowed for disabled subscriptions",
        altered("s", "REFRESH PUBLICATION"),
    ),
    *(
        (
            "A-9",
            "55000",
            f"{REFRESHES} is not allowed for disabled subscriptions",
            altered("with_slot", words),
        )
        for words in ("SET PUBLICATION q", "ADD PUBLICATION q", "DROP PUBLICATION r")
    ),
    (
        "A-10",
        "42601",
        "ALTER SUBSCRIPTION ... REFRESH with copy_data is not allowed when two_phase is enabled",
        altered("enabled", "REFRESH PUBLICATION"),
    ),
    *(
        (
            "A-10",
            "55000",
            f"{REFRESHES} and copy_data is not allowed when two_phase is enabled",
            altered("enabled", words),
        )
        for words in ("SET PUBLICATION q", "ADD PUBLICATION q", "DROP PUBLICATION r")
    ),
    (
        "A-11",
        "25001",
        f"ALTER SUBSCRIPTION ... REFRESH {IN_A_BLOCK}",
        in_a_block("ALTER SUBSCRIPTION enabled REFRESH PUBLICATION"),
    ),
    *(
        (
            "A-11",
            "25001",
            f"{REFRESHES} {IN_A_BLOCK}",
            in_a_block(f"ALTER SUBSCRIPTION enabled {words}"),
        )
        for words in ("SET PUBLICATION q", "ADD PUBLICATION q", "DROP PUBLICATION r")
    ),
    (
        "A-12",
        "42710",
        'publication "p" is already in subscription "enabled"',
        altered("enabled", "ADD PUBLICATION q, p"),
    ),
    (
        "A-12",
        "42P17",
        'publication "q" is not in subscription "enabled"',
        altered("enabled", "DROP PUBLICATION q"),
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
    *(
        (
            "A-12",
            "42710",
            'publication name "q" used more than once',
            altered("enabled", f"{action} PUBLICATION q, q"),
        )
        for action in ("SET", "ADD", "DROP")
    ),
    (
        "A-13",
        "22023",
        "invalid WAL location (LSN): 0/0",
        altered("s", "SKIP (lsn = '0/0')"),
    ),
    (
        "A-13",
        "22023",
        "skip WAL location (LSN 0/1F3) must be greater than origin LSN 0/1F4",
        altered("s", "SKIP (lsn = '0/1F3')"),
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
            altered("s", f"SET ({name} = true)"),
        )
        for name in ("create_slot", "connect", "enabled", "copy_data")
    ),
    (
        "D-1",
        "25001",
        f"DROP SUBSCRIPTION {IN_A_BLOCK}",
        in_a_block("DROP SUBSCRIPTION with_slot"),
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
