"""HINTs for errors of the publisher, of libpq and of the disk that come without a HINT.

A failed connection has no SQLSTATE, only libpq's message, which includes the server's message. The
module recognises English messages; a message in a different language gets the general hint.
"""

from __future__ import annotations

import shlex
from typing import Final

from catalog.errcodes import (
    ADMIN_SHUTDOWN,
    CONFIGURATION_LIMIT_EXCEEDED,
    CONNECTION_FAILURE,
    DISK_FULL,
    INSUFFICIENT_PRIVILEGE,
    IO_ERROR,
    OBJECT_NOT_IN_PREREQUISITE_STATE,
    PROTOCOL_VIOLATION,
    UNDEFINED_OBJECT,
    ObjectNotInPrerequisiteState,
    ReplicationError,
)

_CONNECT: Final = (
    (
        ("certificate verify failed",),
        "The publisher's certificate is not of an authority in sslrootcert: name the authority's "
        "certificate there. If the publisher should have another certificate, do not connect.",
    ),
    (
        ("does not match host name",),
        "Correct host of the connection to a name that is in the publisher's certificate; hostaddr "
        "may hold the address beside it.",
    ),
    (
        ('root certificate file "',),
        "Correct sslrootcert of the connection: a file with the authority's certificate that the "
        "launcher's user may read. A relative name is looked for beside the configuration file.",
    ),
    (
        ("does not support SSL",),
        "Set ssl = on and a certificate on the publisher, or correct host and port of the "
        "connection; sslmode says what is asked for.",
    ),
    (
        ("certificate file", "private key", "client certificate"),
        "Correct sslcert and sslkey of the connection; the key's file must be its owner's alone "
        "(0600).",
    ),
    (
        ("password authentication failed", "no password supplied"),
        "Correct the user or the password: password_command, password_env, password= of the "
        "connection, or libpq's password file.",
    ),
    (
        ("no pg_hba.conf entry",),
        "Let the role connect to that database in the publisher's pg_hba.conf; an entry for "
        '"replication" is not what counts.',
    ),
    (("REPLICATION attribute",), "On the publisher: ALTER ROLE ... REPLICATION."),
    (("CONNECT privilege",), "On the publisher: GRANT CONNECT ON DATABASE ... TO the role."),
    (
        ("max_wal_senders",),
        "Increase max_wal_senders on the publisher, or end one of those that pg_stat_replication "
        "shows there.",
    ),
    (
        ("too many clients", "remaining connection slots", "too many connections"),
        "Increase max_connections on the publisher, or the limit of the role or the database.",
    ),
    (('FATAL:  database "',), "Correct dbname of the connection."),
    (('FATAL:  role "',), "Correct user of the connection, or make the role on the publisher."),
    (
        ("invalid response to SSL", "expected authentication request", "unexpected message"),
        "What listens there does not speak PostgreSQL's protocol: correct host or port of the "
        "connection.",
    ),
    (
        ("could not translate host name", "Connection refused", "timeout expired", "No route"),
        "Correct host or port of the connection; or start the publisher, and see its "
        "listen_addresses and what firewalls let pass.",
    ),
    (("starting up", "shutting down", "recovery"), "Try again when the publisher is up."),
)
"""Parts of libpq's message → hint; the first match counts."""

_ANY_CONNECT: Final = (
    "Check host, port, dbname and user of the connection, and pg_hba.conf on the publisher."
)

_SLOT: Final = {
    OBJECT_NOT_IN_PREREQUISITE_STATE: "Set wal_level = logical on the publisher and restart it.",
    CONFIGURATION_LIMIT_EXCEEDED: (
        "Increase max_replication_slots on the publisher, or drop a slot that nobody needs."
    ),
    INSUFFICIENT_PRIVILEGE: "On the publisher: ALTER ROLE ... REPLICATION.",
    CONNECTION_FAILURE: "Try again when the publisher is up.",
    ADMIN_SHUTDOWN: "Try again when the publisher is up.",
}
"""SQLSTATE of CREATE_REPLICATION_SLOT → hint."""

_DISK: Final = {
    IO_ERROR: "Is there space on the disk, and may you write there?",
    DISK_FULL: "Free space there.",
}


_GARBAGE: Final = (
    "Nothing of it was applied. Connect to the PostgreSQL server itself: a proxy or a pooler may "
    "not pass a replication stream on unchanged. Without one, look into the publisher's log."
)

_NO_PUBLICATION: Final = (
    "Create it on the publisher, or take it out of the subscription's list. A publisher before "
    "version 18 says so too where it was not there yet when the changes to be sent next were "
    "committed: go back to the list before, have pgsub wait for the present position, and set the "
    "new list then."
)
"""The publisher decodes a change with the catalog at the time of the change."""

SPOOL_FULL: Final = (
    "Nothing is lost: the publisher keeps the WAL, and reading goes on by itself. If it lasts or "
    "comes again, find out why the lake is slower than the publisher; for bursts raise "
    "spool_max_size."
)
"""Changes arrive faster than the worker applies changes, or the worker applies none."""

MAINTENANCE_FAILED: Final = (
    "Changes are applied all the same, and it is tried again. If it fails each time, files and "
    "snapshots grow in number and readers become slower: the log has the DETAIL."
)
"""Maintenance could not join files or remove snapshots of a lake table."""

SLOT_WAITS: Final = (
    "The publisher creates a slot once every transaction has ended that was open before. Commit or "
    "roll back the transaction, or end its session with pg_terminate_backend."
)
"""The creation of a replication slot waits for an old transaction."""

LAKE_FAILED: Final = "the lake failed"
"""Begins the message of an error with which the lake server answered a call."""
LAKE_STORAGE_FAILED: Final = "the lake's storage failed"
"""Begins the message of an error of the lake server's disk, object store or catalog."""
LEAKED_BRANCH: Final = (
    "The next start of an apply worker drops them, and so does the next command that drops a "
    "table or a subscription; until then they stand in pgsub status leaked_branches. By hand, for "
    "each branch that lake.SCHEMA.TABLE.refs lists with a name that begins with pgsub_: pgsub sql "
    '"ALTER TABLE lake.SCHEMA.TABLE DROP BRANCH NAME".'
)
"""Branches of pgsub could not be dropped when their lake table left the subscription."""
OTHER_TABLE: Final = (
    "pgsub refresh {name} copies the table that has the name now; until then readers see the "
    "present rows."
)
"""Another table has a subscribed table's name: a staging table was renamed into place."""


def text_changed(subname: str, table: str) -> str:
    """The hint for values that changed on the publisher without a change of a row."""
    refresh = f"pgsub refresh {shlex.quote(subname)} --recopy {shlex.quote(table)}"
    return f"{refresh} brings the present values of all rows."


def suspended(subname: str, table: str) -> str:
    """The hint for a suspended table; the log has the error with the error's own hint."""
    return (
        "Remove the cause; then "
        f"pgsub resume {shlex.quote(subname)} {shlex.quote(table)} copies the table again."
    )


def connecting(error: ReplicationError) -> ReplicationError:
    """The error of a failed connection, with a hint."""
    said = error.detail or ""
    fitting = (hint for parts, hint in _CONNECT if any(part in said for part in parts))
    return _with_hint(error, next(fitting, _ANY_CONNECT))


def making_slot(error: ReplicationError) -> ReplicationError:
    """The publisher's refusal to make a slot, with a hint."""
    return _with_hint(error, _SLOT.get(error.code))


def stream(error: ReplicationError) -> ReplicationError:
    """The error that ended a stream; a hint if the protocol or a publication is the cause."""
    if error.code == UNDEFINED_OBJECT and error.primary.startswith('publication "'):
        return _with_hint(error, _NO_PUBLICATION)
    return _with_hint(error, _GARBAGE if error.code == PROTOCOL_VIOLATION else None)


def disk(error: ReplicationError) -> ReplicationError:
    """An error with a hint if a disk refused a write."""
    return _with_hint(error, _DISK.get(error.code))


def slot_on_standby(name: str, seconds: float) -> ReplicationError:
    """The error of a slot that the publisher did not make in time, with a hint."""
    return ObjectNotInPrerequisiteState(
        f'replication slot "{name}" was not made in {seconds:g} s (create_slot_timeout)',
        detail="The publisher is a standby: it waits for a record of running transactions, which "
        "its primary writes now and then, and not while it is idle.",
        hint="On the primary: SELECT pg_log_standby_snapshot(). Then try again.",
    )


def after_a_gap(subname: str) -> str:
    """The hint for lost changes: the name of one of two commands."""
    name = shlex.quote(subname)
    return (
        f"Copy the tables again with pgsub refresh {name} --recopy, or go on without what is "
        f"missing with pgsub accept-gap {name}."
    )


def _with_hint(error: ReplicationError, hint: str | None) -> ReplicationError:
    if error.hint is None:
        error.hint = hint
    return error
