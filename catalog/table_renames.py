"""Tables that have another name on the publisher, and the configuration of such tables.

A rename is stored in two steps. An apply worker *notes* the new names. The next apply worker
renames the lake table and *finishes*: the catalog has the new names from then on, in a single
transaction. A worker that dies in between has a successor, which finds the note. A table that
leaves the subscription takes the note along.

The configuration of a table has the name of the day on which the file was written. So a table keeps
its former names, and ``under_present_names`` finds the entry.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from catalog.namespace import qualified_name
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import SYNCED, SubscriptionRel
from catalog.rows import decode_lsn, encode_lsn, rel_row, rel_values
from catalog.sqlite_file import CatalogFile

KEEP: Final = "keep"
SUSPEND: Final = "suspend"


class RenameSettings(Protocol):
    """The settings for tables without words in the configuration."""

    @property
    def on_rename(self) -> str:
        """follow | keep | suspend"""

    @property
    def on_schema_change(self) -> str:
        """follow | stop | suspend"""


def follows_rename(sub: Subscription, rel: SubscriptionRel, settings: RenameSettings) -> bool:
    """Does the apply worker go on with the lake table under another name of the publisher's?"""
    return is_in_step(rel) and is_known_by_oid(sub, rel, settings)


def is_known_by_oid(sub: Subscription, rel: SubscriptionRel, settings: RenameSettings) -> bool:
    """Is the publisher's table, whatever its name, the table of the lake table?"""
    options = sub.table_options(rel.nspname, rel.relname)
    mode = options.on_rename or settings.on_rename
    changes = options.on_schema_change or settings.on_schema_change
    known = rel.remote_relid is not None and rel.other_relid is None
    return mode != SUSPEND and changes == "follow" and not options.shared and known


def is_followed(sub: Subscription, rel: SubscriptionRel, settings: RenameSettings) -> bool:
    """Does a worker take another name over, now or when the table is copied?

    A table that waits for a user's resume has no worker.
    """
    return not rel.awaits_resume and is_known_by_oid(sub, rel, settings)


def named_twice(rels: Iterable[SubscriptionRel]) -> set[int]:
    """The oids that two rows of ``rels`` have: a publisher's table has had the name of another.

    Changes under the other name went to the lake table of the other name. The lake table of the
    first name lacks these rows. So neither row follows a new name of the oid.
    """
    oids = Counter(oid for rel in rels for oid in {rel.remote_relid, rel.other_relid} if oid)
    return {oid for oid, count in oids.items() if count > 1}


def is_in_step(rel: SubscriptionRel) -> bool:
    """Does the apply worker rename the table? Else the table's sync worker does, before a copy."""
    return rel.srsubstate in SYNCED and not rel.suspended


@dataclass(frozen=True, slots=True)
class TableRename:
    """The new names of a table, on the publisher and in the lake.

    ``noted`` is the time in microseconds since 1970, ``lsn`` the position at which the name was
    seen.
    """

    subid: int
    relid: int
    nspname: str
    relname: str
    lake_schema: str
    lake_table: str
    noted: int
    lsn: LSN


class TableRenames(CatalogFile):
    """The noted renames of all subscriptions."""

    def note_rename(self, rename: TableRename, rel: SubscriptionRel) -> None:
        """Store a note. The lake table's durable metadata file is known under both names then.

        After a power cut the lake's catalog has one of the names, and the file is looked for by the
        name (``workers.lake.server.set_back``).
        """
        with self.transaction():
            values = {**dataclasses.asdict(rename), "lsn": encode_lsn(rename.lsn)}
            self._write("put_table_rename", values)
            moves = (rename.lake_schema, rename.lake_table) != (rel.lake_schema, rel.lake_table)
            if moves and not self.is_lake_table_taken(rename):
                self._write("copy_lake_durable", _both_names(rename, rel))

    def renames(self, subid: int) -> list[TableRename]:
        """The notes of a subscription."""
        return self._all("table_renames", _rename, subid=subid)

    def forget_rename(self, rename: TableRename) -> None:
        """Forget a note."""
        self._write("forget_table_rename", {"subid": rename.subid, "relid": rename.relid})

    def is_lake_table_taken(self, rename: TableRename) -> bool:
        """Does another table of any subscription go to the lake table of the new name?"""
        found = self._one(
            "lake_table_is_taken",
            lambda _row: True,
            subid=rename.subid,
            relid=rename.relid,
            lake_schema=rename.lake_schema,
            lake_table=rename.lake_table,
        )
        return bool(found)

    def finish_rename(self, rename: TableRename) -> None:
        """Give the table its new names, in the catalog, and forget the note.

        The caller has renamed the lake table. No effect if the table left the subscription.
        """
        with self.transaction():
            found = self._one("rel", rel_row, srsubid=rename.subid, srrelid=rename.relid)
            if found is None:
                return
            now = dataclasses.replace(
                found,
                nspname=rename.nspname,
                relname=rename.relname,
                lake_schema=rename.lake_schema,
                lake_table=rename.lake_table,
                former_names=former_names(found, rename),
            )
            self._write("update_rel", rel_values(now))
            if (now.lake_schema, now.lake_table) != (found.lake_schema, found.lake_table):
                both = _both_names(rename, found)
                self._write("name_lake_relation", {**both, "oid": rename.relid})
                self._write("name_expired_files", {**both, "subid": rename.subid})
                self._write("copy_lake_durable", both)
                old = {"lake_schema": found.lake_schema, "lake_table": found.lake_table}
                self._write("forget_former_lake_durable", old)
            self.forget_rename(rename)


def former_names(rel: SubscriptionRel, rename: TableRename) -> tuple[str, ...]:
    """The names that the table had, the newest last, without the new name."""
    new = qualified_name(rename.nspname, rename.relname)
    names = (*rel.former_names, qualified_name(rel.nspname, rel.relname))
    return tuple(dict.fromkeys(name for name in reversed(names) if name != new))[::-1]


def under_present_names(
    tables: Mapping[str, TableOptions], rels: Iterable[SubscriptionRel]
) -> dict[str, TableOptions]:
    """The options of tables under the names that the tables have now.

    An entry under a former name counts for a table without an entry under the present name. A table
    that was renamed and whose lake table kept its name gets ``to``.
    """
    found, rels = dict(tables), list(rels)
    present = {qualified_name(rel.nspname, rel.relname) for rel in rels}
    for rel in rels:
        if not rel.former_names:
            continue
        name, lake = qualified_name(rel.nspname, rel.relname), (rel.lake_schema, rel.lake_table)
        for former in reversed(rel.former_names):
            if name not in found and former in found and former not in present:
                found[name] = found.pop(former)
        options = found.get(name, TableOptions())
        if options.to is None and lake != (rel.nspname, rel.relname):
            found[name] = dataclasses.replace(options, to=lake)
    return found


def _both_names(rename: TableRename, rel: SubscriptionRel) -> dict[str, object]:
    return {
        "lake_schema": rename.lake_schema,
        "lake_table": rename.lake_table,
        "old_schema": rel.lake_schema,
        "old_table": rel.lake_table,
    }


def _rename(row: sqlite3.Row) -> TableRename:
    return TableRename(
        row["subid"],
        row["relid"],
        row["nspname"],
        row["relname"],
        row["lake_schema"],
        row["lake_table"],
        row["noted"],
        decode_lsn(row["lsn"]),
    )
