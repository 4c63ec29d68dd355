"""password_required: a subscription's connection has a password of its own, or there is none.

PostgreSQL asks this of subscriptions whose owner is no superuser, lest they reach servers by what
the operating system's user may: its environment, its password file, its certificate, a server that
trusts it. All subscriptions here have one owner; the setting ``is_superuser`` says what it is.
"""

from __future__ import annotations

import os
from typing import Final, Protocol

from catalog.errcodes import InsufficientPrivilege, ProhibitedSqlStatementAttempted
from catalog.pg_subscription import Subscription
from config.guc import Settings

PRIMARY: Final = "password is required"


class UsedPassword(Protocol):
    """libpq's connection, as far as it is asked here."""

    @property
    def used_password(self) -> bool:
        """``PQconnectionUsedPassword``."""


class Connection(Protocol):
    """A connection to the publisher; ``workers.publisher.connection`` has the real one."""

    @property
    def pgconn(self) -> UsedPassword:
        """The connection below."""

    def close(self) -> None:
        """Close it."""


def must_use_password(sub: Subscription, settings: Settings) -> bool:
    """``must_use_password`` of PostgreSQL's workers."""
    return sub.subpasswordrequired and not settings.is_superuser


def check_conninfo(sub: Subscription, settings: Settings, *, given: bool | None = None) -> None:
    """``libpqrcv_check_conninfo``: 2F003 without a password, before anything is contacted.

    ``given``: whether the connection has one that is not stored yet.
    """
    if given is None:
        given = sub.passfile is not None or (sub.password_env or "") in os.environ
    if must_use_password(sub, settings) and not given:
        raise ProhibitedSqlStatementAttempted(
            PRIMARY,
            detail="Non-superusers must provide a password in the connection string.",
            hint="Put password=... into the connection, or into an environment variable that "
            "password_env names.",
        )


def check_connected(conn: Connection, sub: Subscription, settings: Settings) -> None:
    """2F003, and the connection is closed, if the server has let us in without our password."""
    if must_use_password(sub, settings) and not conn.pgconn.used_password:
        conn.close()
        raise ProhibitedSqlStatementAttempted(
            PRIMARY,
            detail="Non-superuser cannot connect if the server does not request a password.",
            hint="Target server's authentication method must be changed, or set "
            "password_required=false in the subscription parameters.",
        )


def check_privilege(password_required: bool, settings: Settings) -> None:
    """42501: who is no superuser makes and alters no subscription that needs no password."""
    if not password_required and not settings.is_superuser:
        raise InsufficientPrivilege(
            "password_required=false is superuser-only",
            hint="Subscriptions with the password_required option set to false may only be "
            "created or modified by the superuser: with the setting is_superuser on.",
        )
