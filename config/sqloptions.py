"""The options of a statement in SQL text, checked: names, repetitions and values.

The first half of PostgreSQL's ``parse_subscription_options``, with the options that PostgreSQL's
commands allow; ``config.subscription.settle`` is the second half. No function reads a catalog.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from catalog.errcodes import SyntaxErrorOrAccess
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Refresh, SyncSlot, check_publications
from config.conninfo import split_password
from config.define import READERS
from config.statements import AlterPublications, CreateSubscription, Options
from config.subscription import (
    CreateSubscriptionStmt,
    OptionError,
    WithOptions,
    settle,
    unrecognized,
)

CREATE_OPTIONS: Final = frozenset(WithOptions.model_fields)

SET_OPTIONS: Final = frozenset(
    {
        "slot_name", "synchronous_commit", "binary", "streaming", "two_phase", "disable_on_error",
        "password_required", "run_as_owner", "failover", "origin",
    }
)  # fmt: skip
"""The options of ALTER SUBSCRIPTION … SET; the remaining options belong to other commands."""

PUBLICATION_OPTIONS: Final = frozenset({"copy_data", "refresh"})
REFRESH_OPTIONS: Final = frozenset({"copy_data"})
SKIP_OPTIONS: Final = frozenset({"lsn"})


def read_options(options: Options, supported: frozenset[str]) -> dict[str, Any]:
    """The options' values in the order of the text; raises the first mistake (42601)."""
    found: dict[str, Any] = {}
    for option in options:
        if option.name not in supported:
            raise unrecognized(option.name)
        if option.name in found:
            error = SyntaxErrorOrAccess("conflicting or redundant options")
            error.cursorpos = option.location
            raise error
        found[option.name] = READERS[option.name](option.name, option.value)
    return found


def create_statement(
    asked: CreateSubscription, folder: Path | None = None
) -> CreateSubscriptionStmt:
    """CREATE SUBSCRIPTION with defaults and conflicts settled.

    Files in the connection string are relative to ``folder``. Lake tables get the publisher's
    names: SQL has no words for the key ``tables`` of a file.
    """
    found = read_options(asked.options, CREATE_OPTIONS)
    try:
        options = settle({**WithOptions().model_dump(), **found}, frozenset(found), asked.name)
    except OptionError as refused:
        raise refused.error from None
    connection = split_password(asked.conninfo, folder)
    check_publications(asked.publications)
    return CreateSubscriptionStmt(
        name=asked.name,
        connection=connection,
        password_env=None,
        password_command=None,
        password_command_ttl=0.0,
        publication=asked.publications,
        options=options,
        sync_slot=SyncSlot.TEMPORARY,
        refresh=Refresh.MANUAL,
        tables={},
    )


def set_options(options: Options) -> dict[str, Any]:
    """The changes of ALTER SUBSCRIPTION … SET (…): option → value, ``slot_name`` None for NONE.

    Whether the subscription allows a change is for the command to check.
    """
    return read_options(options, SET_OPTIONS)


@dataclass(frozen=True, slots=True)
class PublicationOptions:
    """``refresh`` and ``copy_data`` of SET, ADD and DROP PUBLICATION."""

    refresh: bool = True
    copy_data: bool = True


def publication_options(asked: AlterPublications) -> PublicationOptions:
    """The options of a change to the publication list; a repeated name is 42710."""
    found = PublicationOptions(**read_options(asked.options, PUBLICATION_OPTIONS))
    check_publications(asked.publications)
    return found


def refresh_copies(options: Options) -> bool:
    """``copy_data`` of REFRESH PUBLICATION."""
    copies: bool = read_options(options, REFRESH_OPTIONS).get("copy_data", True)
    return copies


def skip_lsn(options: Options) -> LSN | None:
    """The position of SKIP; None for NONE."""
    position: LSN | None = read_options(options, SKIP_OPTIONS)["lsn"]
    return position
