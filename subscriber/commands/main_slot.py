"""The subscription's replication slot: created at CREATE, altered, dropped at DROP, or leaked.

A slot that DROP could not remove is leaked. The slot holds back WAL on the publisher, and stays
listed (``pgsub status leaked_slots``) until the slot is gone; every later command with a connection
to the same publisher tries again. System identifier and database tell the publisher. A connection
string does not: the string may have changed, or lead to another server by now.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from catalog import remedies
from catalog.errcodes import (
    ConnectionFailure,
    DuplicateObject,
    FeatureNotSupported,
    ObjectInUse,
    ReplicationError,
    error_context,
)
from catalog.leaked_slot import leaked_slot
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_subscription import SubCreate, Subscription, TwoPhaseState
from config.guc import stored_settings
from config.limits import SLOT_RELEASE_POLL_SECONDS, SLOT_RELEASE_SECONDS
from subscriber.commands.context import CommandContext
from subscriber.commands.leaked_slots import drop_when_released, remember_leak, sync_slots_left
from subscriber.messages import Notice, notice, warning
from workers.process import failpoints
from workers.publisher.interfaces import ReplicationConn
from workers.publisher.replication_slots import alter_slot, fetch_slot, is_in_recovery
from workers.stream.prepared_xacts import PreparedXacts

FAILOVER_SINCE: Final = 17
TWO_PHASE_SINCE: Final = 18
"""The first version in which a publisher can alter the property of an existing slot."""
_UNKNOWN_OUTCOME: Final = ("08", "57")
"""SQLSTATE classes of errors that leave open whether the publisher created the slot."""


def check_slot_is_free(conn: ReplicationConn, sub: Subscription) -> None:
    """Check that the slot of CREATE does not exist yet (42710)."""
    if not sub.create_slot or sub.subslotname is None:
        return
    if fetch_slot(conn, sub.subslotname) is not None:
        raise DuplicateObject(
            f'replication slot "{sub.subslotname}" already exists',
            hint="Name another one with slot_name, use it with create_slot = false, or drop it on "
            "the publisher with pg_drop_replication_slot(). If the data directory it was made for "
            "is lost, pgsub rebuild goes on with it.",
        )


def slot_warnings(conn: ReplicationConn, sub: Subscription) -> Iterator[Notice]:
    """Warnings about an existing slot that the apply worker cannot use."""
    name = sub.subslotname
    if sub.create_slot or name is None:
        return
    slot = fetch_slot(conn, name)
    if slot is None:
        yield warning(
            f'replication slot "{name}" does not exist on the publisher',
            detail="The subscription's worker fails until it is there.",
            hint=f"On the publisher: SELECT pg_create_logical_replication_slot('{name}', "
            "'pgoutput').",
        )
    elif not slot.is_pgoutput_here:
        yield warning(
            f'replication slot "{name}" is not one of pgoutput in the database of the connection',
            detail="The subscription's worker cannot read from it.",
            hint="Name another one with slot_name.",
        )
    elif slot.active:
        yield warning(
            f'replication slot "{name}" is active for PID {slot.active_pid} on the publisher',
            detail="The subscription's worker fails until it is not.",
            hint="Stop whoever reads from it, or name another one with slot_name.",
        )


def make_slot(sub: Subscription, conn: ReplicationConn, context: CommandContext) -> LSN:
    """Create the slot, or read an existing slot; the position where changes begin.

    0/0 without a slot. Raises the publisher's error: wal_level, limits, privileges.
    """
    if sub.subslotname is None:
        return InvalidXLogRecPtr
    if not sub.create_slot:
        slot = fetch_slot(conn, sub.subslotname)
        return (slot and slot.confirmed_flush_lsn) or InvalidXLogRecPtr
    return create_main_slot(sub.subslotname, sub, conn, context)


def renew_slot(sub: Subscription, conn: ReplicationConn, context: CommandContext) -> LSN:
    """Drop the subscription's old slot and create a new slot; the position where changes begin.

    The caller copies every table again.
    """
    name = sub.subslotname
    if name is None:
        return InvalidXLogRecPtr
    with error_context(f'dropping replication slot "{name}" on the publisher'):
        if drop_when_released(conn, name):
            context.notify(notice(f'dropped replication slot "{name}" on publisher'))
    PreparedXacts(context.data_dir, sub.subuuid, sub.oid).forget()
    failpoints.reach("recopy.slot_dropped")
    return create_main_slot(name, sub, conn, context)


def create_main_slot(
    name: str, sub: Subscription, conn: ReplicationConn, context: CommandContext
) -> LSN:
    """Create the slot; the consistent point. On a standby a time-out ends the attempt.

    A publisher makes no slot with both ``failover`` and ``two_phase``: two-phase commit is pending
    again, and the apply worker turns the property on.
    """
    two_phase = sub.subtwophasestate is TwoPhaseState.ENABLED
    if two_phase and sub.subfailover:
        two_phase = False
        context.store.update_subscription(sub.oid, subtwophasestate=TwoPhaseState.PENDING)
    timeout = stored_settings(context.store.settings()).create_slot_timeout
    limit = timeout if timeout and is_in_recovery(conn) else None
    # Only a command that creates a slot loads the connections of workers.
    from workers.publisher.slot_wait import telling_waits

    said: set[str] = set()

    def tell(text: str) -> None:
        what = text.partition(", open for")[0]
        if what not in said:
            said.add(what)
            context.notify(notice(text))

    with (
        error_context(f'creating replication slot "{name}" on the publisher'),
        telling_waits(sub, conn, name, tell),
    ):
        try:
            point = conn.create_slot(
                name,
                temporary=False,
                snapshot="nothing",
                failover=sub.subfailover,
                two_phase=two_phase,
                timeout=limit,
            )
        except ReplicationError as error:
            raise remedies.making_slot(error) from None
    context.notify(notice(f'created replication slot "{name}" on publisher'))
    return point


def may_have_made_slot(error: BaseException) -> bool:
    """May the slot exist although ``make_slot`` failed with the error?"""
    return not isinstance(error, ReplicationError) or error.code.startswith(_UNKNOWN_OUTCOME)


def drop_unused_slot(sub: Subscription, conn: ReplicationConn, context: CommandContext) -> None:
    """Drop the slot of a *creating* row, if CREATE may have created the slot.

    After a lost ``conn``, perhaps the cause of the failure, a new connection is used.
    """
    if not sub.create_slot or sub.subslotname is None:
        return
    try:
        _drop_made_slot(sub.subslotname, conn)
    except ReplicationError as error:
        if not error.code.startswith(_UNKNOWN_OUTCOME):
            raise
        with closing(context.connect(sub)) as fresh:
            _drop_made_slot(sub.subslotname, fresh)


def _drop_made_slot(name: str, conn: ReplicationConn) -> None:
    slot = fetch_slot(conn, name)
    if slot is None or not slot.is_pgoutput_here:
        return
    if slot.active:
        # A walsender that has not yet noticed its client's end may still be creating the slot.
        raise ObjectInUse(f'replication slot "{name}" is active for PID {slot.active_pid}')
    conn.drop_slot(name, wait=False, missing_ok=True)


def connect_to_drop(sub: Subscription, context: CommandContext) -> ReplicationConn | None:
    """A connection for DROP; None if the publisher has nothing to drop.

    08006 without a connection, or if the slot is missing before the first DROP. Without a slot
    name only slots of synchronisations may exist, and an error leaves those silently.
    """
    left = sync_slots_left(sub, context.store.rels(sub.oid), context.store)
    if sub.subslotname is None and not left:
        return None
    try:
        conn = context.connect(sub)
    except ReplicationError as error:
        if sub.subslotname is None:
            return None
        for name in left:
            context.notify(warning(f'could not drop tablesync replication slot "{name}"'))
        raise ConnectionFailure(
            "could not connect to publisher when attempting to drop replication slot "
            f'"{sub.subslotname}": {error.primary}',
            detail=error.detail,
            hint=_without_slot(sub),
        ) from None
    try:
        _check_slot_is_there(sub, conn)
    except BaseException:
        conn.close()
        raise
    return conn


def _check_slot_is_there(sub: Subscription, conn: ReplicationConn) -> None:
    if sub.subcreate is not SubCreate.READY or sub.subslotname is None:
        return
    if fetch_slot(conn, sub.subslotname) is None:
        name = sub.subslotname
        raise ConnectionFailure(
            f'could not drop replication slot "{name}" on publisher: replication slot "{name}" '
            "does not exist",
            hint=_without_slot(sub),
        )


def _without_slot(sub: Subscription) -> str:
    name = shlex.quote(sub.subname)
    return (
        "Use ALTER SUBSCRIPTION ... DISABLE to disable the subscription, and then use ALTER "
        "SUBSCRIPTION ... SET (slot_name = NONE) to disassociate it from the slot; or pgsub drop "
        f"--leave-slot {name}, which goes on listing the slot. One that is there holds back WAL on "
        "the publisher until it is dropped."
    )


def alter_main_slot(
    sub: Subscription,
    conn: ReplicationConn,
    *,
    failover: bool | None,
    two_phase: bool | None,
) -> None:
    """Alter the given properties of the subscription's slot, after its walsender's end.

    A publisher that cannot alter a property (0A000) cannot have the property turned on, and a slot
    of it keeps an enabled ``two_phase``.
    """
    name, version = sub.subslotname, conn.server_version
    failover = _if_known(failover, "failover", FAILOVER_SINCE, version, needed=failover)
    enabled = sub.subtwophasestate is TwoPhaseState.ENABLED
    two_phase = _if_known(two_phase, "two_phase", TWO_PHASE_SINCE, version, needed=enabled)
    if name is None or (failover is None and two_phase is None):
        return
    deadline = time.monotonic() + SLOT_RELEASE_SECONDS
    while (slot := fetch_slot(conn, name)) is not None and slot.active:
        if time.monotonic() > deadline:
            # The publisher would wait until the reader's end.
            raise ConnectionFailure(
                f'could not alter replication slot "{name}" on publisher: replication slot '
                f'"{name}" is active for PID {slot.active_pid}',
                hint="Stop whoever reads from it, then try again.",
            )
        time.sleep(SLOT_RELEASE_POLL_SECONDS)
    alter_slot(conn, name, failover=failover, two_phase=two_phase)


def _if_known(
    value: bool | None, option: str, since: int, version: int, *, needed: bool | None
) -> bool | None:
    """The value, or None for a publisher that cannot alter the property; an error if ``needed``."""
    if version >= since or value is None or not needed:
        return value if version >= since else None
    raise FeatureNotSupported(
        f"{option} of a replication slot cannot be altered on a publisher of version {version}",
        hint=f"It takes version {since} or later.",
    )


def release_slot(sub: Subscription, conn: ReplicationConn | None, context: CommandContext) -> bool:
    """DROP's part on the publisher: True if the slot stays and was listed as leaked.

    The slot may be missing: an earlier DROP may have died after dropping the slot.
    """
    name = sub.subslotname
    if name is None:
        return False
    if conn is None:
        remember_leak(leaked_slot(sub, name, "it was left on purpose"), context)
        return True
    try:
        if drop_when_released(conn, name):
            context.notify(notice(f'dropped replication slot "{name}" on publisher'))
        else:
            context.notify(
                notice(f'replication slot "{name}" does not exist on publisher, skipping')
            )
    except ReplicationError as error:
        remember_leak(leaked_slot(sub, name, error.primary), context)
        return True
    return False
