"""password_required: a subscription connects with its password, or not at all.

PostgreSQL demands a password from subscriptions whose owner is no superuser. Without the rule a
subscription could reach servers by the rights of the operating system's user: the environment, the
password file, the certificate, a server that trusts the user. All subscriptions of pgsub have one
owner; the setting ``is_superuser`` tells whether the owner is a superuser.
"""

from __future__ import annotations

import os
from typing import Final, Protocol

from catalog.errcodes import InsufficientPrivilege, ProhibitedSqlStatementAttempted
from catalog.pg_subscription import Subscription
from config.guc import Settings

PRIMARY: Final = "password is required"


class UsedPassword(Protocol):
    """The part of libpq's connection that the check needs."""

    @property
    def used_password(self) -> bool:
        """``PQconnectionUsedPassword``."""


class Connection(Protocol):
    """A connection to the publisher; ``workers.publisher.connection`` has the real class."""

    @property
    def pgconn(self) -> UsedPassword:
        """libpq's connection."""

    def close(self) -> None:
        """Close the connection."""


def must_use_password(sub: Subscription, settings: Settings) -> bool:
    """True if the subscription needs a password: ``must_use_password`` of PostgreSQL's workers."""
    return sub.subpasswordrequired and not settings.is_superuser


def check_conninfo(sub: Subscription, settings: Settings, *, given: bool | None = None) -> None:
    """``libpqrcv_check_conninfo``: raise 2F003 without a password, before the first connection.

    ``given`` is true if the connection string has a password that is not stored yet.
    """
    if given is None:
        given = (
            sub.passfile is not None
            or sub.password_command is not None
            or (sub.password_env or "") in os.environ
        )
    if must_use_password(sub, settings) and not given:
        raise ProhibitedSqlStatementAttempted(
            PRIMARY,
            detail="Non-superusers must provide a password in the connection string.",
            hint="Put password=... into the connection, or into an environment variable that "
            "password_env names.",
        )


def check_connected(conn: Connection, sub: Subscription, settings: Settings) -> None:
    """Close the connection and raise 2F003 if the server let the worker in without a password."""
    if must_use_password(sub, settings) and not conn.pgconn.used_password:
        conn.close()
        raise ProhibitedSqlStatementAttempted(
            PRIMARY,
            detail="Non-superuser cannot connect if the server does not request a password.",
            hint="Target server's authentication method must be changed, or set "
            "password_required=false in the subscription parameters.",
        )


def check_privilege(password_required: bool, settings: Settings) -> None:
    """Raise 42501 for a subscription without password if the owner is no superuser."""
    if not password_required and not settings.is_superuser:
        raise InsufficientPrivilege(
            "password_required=false is superuser-only",
            hint="Subscriptions with the password_required option set to false may only be "
            "created or modified by the superuser: with the setting is_superuser on.",
        )
