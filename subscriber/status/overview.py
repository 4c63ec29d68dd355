"""``pgsub status`` without a view's name: two or three views, and the problems below.

A problem is a paused receive, failed maintenance, a slot that waits for a transaction, a replaced
table, changed text, a suspended table, or an error; each is printed in psql's form.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime

from catalog.changed_text import StoredTextTypes
from catalog.namespace import printable, qualified_name
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.remedies import (
    MAINTENANCE_FAILED,
    OTHER_TABLE,
    SLOT_WAITS,
    SPOOL_FULL,
    suspended,
    text_changed,
)
from catalog.store_sqlite import CatalogStore
from config.quantities import format_memory, pretty_size
from subscriber.printing import Row, as_text_table, moment, timestamptz
from subscriber.status.views import OVERVIEW, VIEWS, Workers
from workers.process.worker_slots import LogicalRepWorker


def overview(store: CatalogStore, workers: Workers, width: int | None = None) -> str:
    """Several views one after the other, each under its name; then the problems.

    ``width`` is that of the window, None to fold no table.
    """

    def rows(name: str) -> list[Row]:
        return VIEWS[name].rows(store, workers)

    names = list(OVERVIEW)
    names += ["leaked_slots"] if store.leaked_slots() else []
    names += ["leaked_branches"] if store.leaked_branches() else []
    parts = [f"{name}\n{as_text_table(VIEWS[name].columns, rows(name), width)}" for name in names]
    parts += [_pause_lines(row) for row in rows("spools") if row["paused_since"]]
    parts += [_upkeep_lines(row) for row in rows("lake_maintenance") if row["upkeep_error"]]
    parts += [_wait_lines(store, worker) for worker in workers if worker.phase]
    parts += [_capture_lines(store, *each) for each in store.ddl_capture().items()]
    parts += [_other_table_lines(sub, rel) for sub, rel in _other_tables(store)]
    parts += [_changed_text_lines(store, row) for row in store.changed_text()]
    parts += [_suspended_lines(sub, rel) for sub, rel in _suspended(store)]
    parts += [_error_lines(row) for row in rows("last_errors")]
    return "\n".join(parts)


def _error_lines(row: Row) -> str:
    """An error, with the subscription or table."""
    lines = [f"ERROR:  {row['sqlstate']}: {row['message']}"]
    lines += [f"{key.upper()}:  {row[key]}" for key in ("detail", "hint") if row[key]]
    return _message_lines(row, row["since"], lines, attempts=_attempts(row))


def _attempts(row: Row) -> str:
    """How often the error came, and when the next worker tries; empty after a single failure."""
    if row["failures"] < 2:
        return ""
    due = row["next_attempt_time"]
    next_attempt = "" if due is None else f", next attempt at {_shown(due)}"
    return f", {row['failures']} failures{next_attempt}"


def _pause_lines(row: Row) -> str:
    """A full spool."""
    text = (
        f"WARNING:  reading from the publisher is paused: {pretty_size(row['spool_bytes'])} "
        f"received and not applied, spool_max_size is {format_memory(row['spool_max_size'])}"
    )
    return _message_lines(row, row["paused_since"], [text, f"HINT:  {SPOOL_FULL}"])


def _upkeep_lines(row: Row) -> str:
    """Maintenance of a lake table that failed at the last attempt."""
    lake = f"{row['lake_schema']}.{row['lake_table']}"
    text = f'WARNING:  upkeep of lake table "{lake}" failed: {row["upkeep_error"]}'
    lines = [text, f"HINT:  {MAINTENANCE_FAILED}"]
    return _message_lines({**row, "relation": None}, row["last_failed_time"], lines, "at")


def _wait_lines(store: CatalogStore, worker: LogicalRepWorker) -> str:
    """A sync worker that waits for the publisher."""
    sub, rel = store.subscription(worker.subid), store.rel(worker.subid, worker.relid)
    if sub is None or rel is None:
        return ""
    row = {"subname": sub.subname, "relation": qualified_name(rel.nspname, rel.relname)}
    return _message_lines(row, None, [f"WARNING:  {worker.phase}", f"HINT:  {SLOT_WAITS}"])


def _capture_lines(store: CatalogStore, subid: int, triggers: str) -> str:
    """By which of two ways changes of tables are known, where ``ddl_capture`` is on."""
    sub = store.subscription(subid)
    if sub is None:
        return ""
    lines = ["NOTICE:  changes of tables are told by event triggers of the publisher"]
    if not triggers:
        lines = [
            "WARNING:  event triggers of the publisher are missing: changes of tables are known by "
            "looking",
            f"HINT:  pgsub ddl-capture install {shlex.quote(sub.subname)} --execute makes them.",
        ]
    return _message_lines({"subname": sub.subname, "relation": None}, None, lines)


def _other_tables(store: CatalogStore) -> list[tuple[Subscription, SubscriptionRel]]:
    return [
        (sub, rel)
        for sub in store.subscriptions()
        for rel in store.rels(sub.oid)
        if rel.other_relid is not None
    ]


def _other_table_lines(sub: Subscription, rel: SubscriptionRel) -> str:
    """A table whose name another table has on the publisher."""
    name = qualified_name(rel.nspname, rel.relname)
    lines = [
        f'WARNING:  table "{name}" is another one on the publisher than the one that was copied',
        f"DETAIL:  The lake has rows of both. Its OID was {rel.remote_relid}, and is "
        f"{rel.other_relid}.",
        f"HINT:  {OTHER_TABLE.format(name=shlex.quote(sub.subname))}",
    ]
    return _message_lines({"subname": sub.subname, "relation": name}, None, lines)


def _changed_text_lines(store: CatalogStore, row: StoredTextTypes) -> str:
    """A table with text that the publisher has changed without an event."""
    sub, rel = store.subscription(row.subid), store.rel(row.subid, row.relid)
    if sub is None or rel is None:
        return ""
    name = qualified_name(rel.nspname, rel.relname)
    hint = text_changed(sub.subname, name)
    lines = [f"WARNING:  {row.primary(name)}", f"DETAIL:  {row.detail}", f"HINT:  {hint}"]
    return _message_lines({"subname": sub.subname, "relation": name}, moment(row.since or 0), lines)


def _suspended(store: CatalogStore) -> list[tuple[Subscription, SubscriptionRel]]:
    return [
        (sub, rel)
        for sub in store.subscriptions()
        for rel in store.rels(sub.oid)
        if rel.awaits_resume
    ]


def _suspended_lines(sub: Subscription, rel: SubscriptionRel) -> str:
    """A table that an error has suspended."""
    name = qualified_name(rel.nspname, rel.relname)
    missing = (
        f"It misses its changes from the transaction that ends at {rel.suspend_lsn} on."
        if rel.suspend_lsn
        else "Its copy failed."
    )
    lines = [
        f'WARNING:  {rel.suspend_sqlstate}: table "{name}" is suspended: {rel.suspend_error}',
        f"DETAIL:  {missing} Readers see its last good state.",
        f"HINT:  {suspended(sub.subname, name)}",
    ]
    row = {"subname": sub.subname, "relation": name}
    return _message_lines(row, moment(rel.suspend_time or 0), lines)


def _message_lines(
    row: Row,
    since: datetime | None,
    lines: Sequence[str],
    when: str = "since",
    attempts: str = "",
) -> str:
    """A message about a subscription or a table, below a line with the name and any time."""
    subject = f'subscription "{row["subname"]}"'
    if row["relation"]:
        subject = f'table "{row["relation"]}" of {subject}'
    if since is not None:
        subject += f", {when} {_shown(since)}"
    return printable("\n".join([f"{subject}{attempts}:", *lines])) + "\n"


def _shown(value: datetime) -> str:
    return timestamptz(value.replace(microsecond=0))
