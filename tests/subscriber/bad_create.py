"""PostgreSQL's errors at CREATE SUBSCRIPTION: each condition of C-1 to C-16, by each way to ask."""

from __future__ import annotations

from typing import Final

from tests.subscriber.statements import CONNECTION, LONG, OFFLINE
from tests.subscriber.ways import Ask, both, create, sql

CREATE: Final = "CREATE SUBSCRIPTION t CONNECTION 'dbname=nowhere'"
NO_SLOT: Final = "slot_name = NONE"


def with_(sql_options: str, in_file: str) -> dict[str, Ask]:
    """CREATE with these options, and a file with them under ``with``."""
    return {
        "sql": sql(f"{CREATE} PUBLICATION p WITH ({sql_options})"),
        **both(f"publication: p, with: {{{in_file}}}"),
    }


def offline(sql_options: str, in_file: str) -> dict[str, Ask]:
    """The same with ``connect = false`` in front."""
    return with_(f"connect = false, {sql_options}", f"connect: false, {in_file}")


CREATE_ERRORS: Final[list[tuple[str, str, str, dict[str, Ask]]]] = [
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
            "C-2",
            "42601",
            f"{name} requires a Boolean value",
            with_(f"{name} = maybe", f"{name}: maybe"),
        )
        for name in (
            "connect",
            "enabled",
            "create_slot",
            "copy_data",
            "binary",
            "two_phase",
            "disable_on_error",
            "password_required",
            "run_as_owner",
            "failover",
        )
    ),
    *(
        ("C-2", sqlstate, said, offline(f"slot_name = '{name}'", f"slot_name: '{name}'"))
        for name, sqlstate, said in (
            ("Bad-Name", "42602", 'replication slot name "Bad-Name" contains invalid character'),
            ("", "42602", 'replication slot name "" is too short'),
            (LONG, "42622", f'replication slot name "{LONG}" is too long'),
        )
    ),
    *(
        (
            "C-3",
            "42601",
            f"connect = false and {name} = true are mutually exclusive options",
            offline(f"{name} = true", f"{name}: true"),
        )
        for name in ("enabled", "create_slot", "copy_data")
    ),
    # enabled is looked at first
    (
        "C-4",
        "42601",
        "slot_name = NONE and enabled = true are mutually exclusive options",
        with_(
            f"{NO_SLOT}, create_slot, enabled",
            "slot_name: NONE, create_slot: true, enabled: true",
        ),
    ),
    (
        "C-4",
        "42601",
        "subscription with slot_name = NONE must also set enabled = false",
        with_(f"{NO_SLOT}, create_slot", "slot_name: NONE, create_slot: true"),
    ),
    (
        "C-4",
        "42601",
        "slot_name = NONE and create_slot = true are mutually exclusive options",
        with_(
            f"{NO_SLOT}, enabled = false, create_slot",
            "slot_name: NONE, enabled: false, create_slot: true",
        ),
    ),
    (
        "C-4",
        "42601",
        "subscription with slot_name = NONE must also set create_slot = false",
        with_(f"{NO_SLOT}, enabled = false", "slot_name: NONE, enabled: false"),
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
        offline("password_required = false", "password_required: false"),
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
        "42601",
        'invalid connection string syntax: missing "="',
        {
            "sql": sql("CREATE SUBSCRIPTION t CONNECTION 'x' PUBLICATION p"),
            **both("publication: p", connection="x"),
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
        offline("origin = some", "origin: some"),
    ),
    (
        "C-12",
        "42601",
        'streaming requires a Boolean value or "parallel"',
        offline("streaming = maybe", "streaming: maybe"),
    ),
    (
        "C-13",
        "22023",
        'invalid value for parameter "synchronous_commit": "never"',
        offline("synchronous_commit = never", "synchronous_commit: never"),
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
]
