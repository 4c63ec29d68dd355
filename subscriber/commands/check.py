"""``pgsub check``: everything CREATE would reject, all at once, with nothing created.

The command reads from publisher and lake and lists every finding. Nothing stays changed: the probe
of a configured catalog makes a scratch table, and drops the table. A finding is an error that
CREATE would raise, or a warning: a problem that CREATE ignores and that matters later.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from catalog.errcodes import (
    ConfigurationLimitExceeded,
    InsufficientPrivilege,
    ObjectNotInPrerequisiteState,
    ReplicationError,
)
from catalog.pg_subscription import SubCreate, Subscription
from catalog.sqlite_file import FILE_NAME
from catalog.store_sqlite import CatalogStore
from config.guc import Settings
from config.load import Config
from config.quantities import format_duration, parse_duration
from config.subscription import CreateSubscriptionStmt
from subscriber.commands.alter_to_file import refusals, under_present_names
from subscriber.commands.context import CommandContext
from subscriber.commands.create_drop import check_password, new_row
from subscriber.commands.main_slot import check_slot_is_free, slot_warnings
from subscriber.commands.open_context import open_command_context
from subscriber.commands.schema.column_rules import rule_findings
from subscriber.commands.schema.file_writer import writer_findings
from subscriber.commands.table_mapping import (
    MappedTable,
    fetch_mapped_tables,
    lake_findings,
    missing_publications_warning,
    privilege_findings,
    published_findings,
    published_names,
    table_warnings,
)
from subscriber.commands.unseen_differences import changing_text_warnings, row_security_warnings
from subscriber.launcher.passfile import temporary_passfile
from subscriber.messages import Notice, notice, warning
from workers.proto.message_rows import FIRST_WITH_MESSAGES
from workers.publisher.interfaces import QueryConn, ReplicationConn
from workers.publisher.table_shape import fetch_triggers

Finding = ReplicationError | Notice


@dataclass(frozen=True, slots=True)
class Checked:
    """The findings about a subscription, in the order of CREATE's checks."""

    name: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Would CREATE succeed?"""
        return not any(isinstance(finding, ReplicationError) for finding in self.findings)


def check_file(data_dir: Path, config: Config) -> list[Checked]:
    """Check every subscription of a file. A missing data directory is not created."""
    with ExitStack() as stack:
        if (data_dir / FILE_NAME).exists():
            store = CatalogStore.open(data_dir)
        else:
            store = CatalogStore.open(":memory:")
            data_dir = Path(stack.enter_context(TemporaryDirectory(prefix="pgsub")))
        stack.callback(store.close)
        context = stack.enter_context(open_command_context(data_dir, store, config))
        return [check_subscription(stmt, context, config.settings) for stmt in config.subscriptions]


def check_subscription(
    stmt: CreateSubscriptionStmt, context: CommandContext, settings: Settings
) -> Checked:
    """Check a subscription: file, publisher and lake."""
    existing = context.store.subscription_by_name(stmt.name)
    if existing is not None and existing.subcreate is not SubCreate.READY:
        existing = None
    if existing is not None:
        stmt = under_present_names(existing, stmt, context)
    findings: list[Finding] = []
    findings += _error_of(lambda: check_password(stmt, settings))
    if existing is not None:
        findings += refusals(existing, stmt, context)
    if stmt.options.connect and not findings:
        findings += _connected(existing or new_row(stmt), stmt, context, settings, existing is None)
    return Checked(stmt.name, tuple(findings))


def _error_of(check: Callable[[], object]) -> list[Finding]:
    try:
        check()
    except ReplicationError as error:
        return [error]
    return []


def _connected(
    sub: Subscription,
    stmt: CreateSubscriptionStmt,
    context: CommandContext,
    settings: Settings,
    new: bool,
) -> list[Finding]:
    """All checks on the publisher; a lost connection is the last finding."""
    findings: list[Finding] = []
    mapped: list[MappedTable] = []
    try:
        with (
            temporary_passfile(stmt.connection.password) as passfile,
            closing(context.connect(replace(sub, passfile=passfile))) as conn,
        ):
            if new:
                findings += _error_of(lambda: check_slot_is_free(conn, sub))
                findings += slot_warnings(conn, sub)
                findings += server_findings(conn, sub, settings)
            if settings.ddl_capture:
                findings += ddl_capture_findings(conn, sub.subname)
            findings += missing_publications_warning(conn, stmt.publication)
            mapped = fetch_mapped_tables(conn, stmt.publication, stmt.tables)
            findings += published_findings(mapped)
            rels = [] if new else context.store.rels(sub.oid)
            findings += rule_findings(mapped, stmt.tables, None if new else sub, rels)
            findings += table_warnings(mapped, stmt.tables)
            findings += changing_text_warnings(mapped)
            if stmt.options.copy_data:
                findings += privilege_findings(conn, mapped)
                findings += row_security_warnings(conn, published_names(mapped))
    except ReplicationError as error:
        findings.append(error)
    if mapped:
        try:
            no_new_files = context.probe_lake()
            findings += lake_findings(mapped, context.lake_tables, context.store, sub)
            findings += writer_findings(mapped, no_new_files, context)
        except ReplicationError as error:
            findings.append(error)
    return findings


def server_findings(
    conn: ReplicationConn, sub: Subscription, settings: Settings
) -> Iterator[Finding]:
    """Findings about the publisher's configuration and the role's privileges."""
    shown = _show(conn)
    if shown["wal_level"] != "logical":
        yield ObjectNotInPrerequisiteState(
            f'publisher has wal_level = {shown["wal_level"]}, logical decoding requires "logical"',
            hint="Set wal_level = logical on the publisher and restart it.",
        )
    if shown["role"] != "t":
        yield InsufficientPrivilege(
            "the role of the connection may not use replication slots",
            hint="ALTER ROLE ... REPLICATION on the publisher.",
        )
    yield from _limit_findings(shown, sub, settings)
    if shown["recovery"] == "t":
        yield warning(
            "publisher is a standby",
            detail="Making a replication slot there waits for a record that an idle primary does "
            "not write.",
            hint="SELECT pg_log_standby_snapshot() on the primary helps.",
        )
    for name in ("idle_replication_slot_timeout", "max_slot_wal_keep_size"):
        if shown[name] not in ("", "-1", "0"):
            yield warning(
                f"publisher may invalidate a slot that is needed: {name} = {shown[name]}",
                detail="An initial copy, or an outage, that goes beyond it loses the slot.",
                hint=f"Set {name} to what the longest copy and outage need.",
            )
    timeout = parse_duration(shown["wal_sender_timeout"] or "0")
    interval = settings.wal_receiver_status_interval
    if 0 < timeout < interval:
        yield warning(
            f"publisher's wal_sender_timeout ({format_duration(timeout)}) is shorter than "
            f"wal_receiver_status_interval ({format_duration(interval)})",
            hint="Make the first longer or the second shorter.",
        )


def ddl_capture_findings(conn: QueryConn, name: str) -> Iterator[Finding]:
    """Tell by which of two ways changes of tables are known, where ``ddl_capture`` is on."""
    if conn.server_version >= FIRST_WITH_MESSAGES and fetch_triggers(conn) is not None:
        yield notice("changes of tables are told by event triggers of the publisher")
        return
    yield warning(
        "event triggers of the publisher are missing: changes of tables are known by looking",
        hint=f"pgsub ddl-capture install {shlex.quote(name)} --execute makes them.",
    )


def _limit_findings(
    shown: dict[str, str], sub: Subscription, settings: Settings
) -> Iterator[Finding]:
    """Slots and walsenders: for the stream, and for every table synchronised at a time."""
    syncs = settings.max_sync_workers_per_subscription
    main = 1 if sub.create_slot and sub.subslotname is not None else 0
    for limit, used, what in (
        ("max_replication_slots", "slots", "replication slots"),
        ("max_wal_senders", "senders", "WAL senders"),
    ):
        free = int(shown[limit]) - int(shown[used])
        if free < main:
            yield ConfigurationLimitExceeded(
                f"publisher has no free {what}", hint=f"Increase {limit} on the publisher."
            )
        elif free < main + syncs:
            yield warning(
                f"publisher has {free} free {what}, {main + syncs} are needed while tables are "
                "synchronised",
                hint=f"Increase {limit} on the publisher, or decrease "
                "max_sync_workers_per_subscription.",
            )


_SETTINGS: Final = (
    "wal_level",
    "max_replication_slots",
    "max_wal_senders",
    "idle_replication_slot_timeout",
    "max_slot_wal_keep_size",
    "wal_sender_timeout",
)


def _show(conn: ReplicationConn) -> dict[str, str]:
    """Settings and state of the publisher by name; '' for an unknown setting."""
    settings = conn.exec(_SHOW.format(", ".join(_setting(name) for name in _SETTINGS)))[0]
    state = conn.exec(_STATE)[0]
    names = (*_SETTINGS, "slots", "senders", "role", "recovery")
    return {name: value or "" for name, value in zip(names, (*settings, *state), strict=True)}


def _setting(name: str) -> str:
    return f"pg_catalog.current_setting('{name}', true)"


_SHOW: Final = "SELECT {}"
_STATE: Final = (
    "SELECT (SELECT count(*) FROM pg_catalog.pg_replication_slots), "
    # The command's connection is among the senders.
    "(SELECT count(*) FROM pg_catalog.pg_stat_replication) - 1, "
    "(SELECT rolsuper OR rolreplication FROM pg_catalog.pg_roles WHERE rolname = current_user), "
    "pg_catalog.pg_is_in_recovery()"
)
