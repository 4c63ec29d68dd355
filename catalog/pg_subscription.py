"""``pg_subscription``: a row per subscription, and the rules for the values.

PostgreSQL 18's columns come first, with PostgreSQL's names and meaning; ``subconninfo`` never holds
a password. The remaining columns exist in this product only.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from catalog.errcodes import NAME_TOO_LONG, DuplicateColumn, DuplicateObject, InvalidName
from catalog.namespace import NAMEDATALEN, qualified_name
from catalog.pg_lsn import LSN, InvalidXLogRecPtr

LAKE_DATABASE_ID: Final = 5
"""``subdbid`` of every subscription: the lake is one database (PostgreSQL's ``postgres`` is 5)."""

BOOTSTRAP_SUPERUSERID: Final = 10
"""``subowner`` of every subscription: the lake has no roles."""

OWNER: Final = "postgres"
"""The name of the only role, ``BOOTSTRAP_SUPERUSERID``."""

MASK_NULL: Final = "null"
"""The mask that leaves a column NULL in the lake."""

_SLOT_NAME: Final = re.compile(r"[a-z0-9_]+")


class SubCreate(StrEnum):
    """The progress of CREATE or DROP; only a *ready* subscription has workers."""

    CREATING = "creating"  # the row exists, and perhaps the replication slot
    READY = "ready"
    DROPPING = "dropping"  # the row exists; perhaps the slot no longer does


class SyncSlot(StrEnum):
    """The kind of replication slot of a table synchronisation."""

    TEMPORARY = "temporary"  # PostgreSQL 10-13: a crash before s copies the table again
    PERMANENT = "permanent"  # PostgreSQL 14 and later, with the extra state f


class Refresh(StrEnum):
    """Who refreshes a subscription when tables join or leave a publication."""

    MANUAL = "manual"  # as in PostgreSQL
    AUTO = "auto"


class Stream(StrEnum):
    """``substream``; ``parallel`` is stored and displayed, and works as ``on``."""

    OFF = "f"
    ON = "t"
    PARALLEL = "p"


class TwoPhaseState(StrEnum):
    """``subtwophasestate``."""

    DISABLED = "d"
    PENDING = "p"
    ENABLED = "e"


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The configuration of a published table.

    ``to`` is the lake table as (schema, table), None for the publisher's names.
    ``on_key_conflict`` None means undeclared: the worker looks up the key of an insert only if the
    table may have the key already. ``defaults`` maps lake-only columns to Spark expressions for new
    rows; ``generated`` maps columns to expressions that are computed with every write of a row.
    ``keys`` are lists of columns in which no two rows may agree, besides the replica identity.
    ``columns`` maps published columns to lake columns with another name; ``excluded`` names
    published columns whose values never reach the lake. ``masks`` has for published columns the
    kind of mask, and the environment variable with the key, else an empty text. ``types`` has the
    types of lake columns, as in the configuration. ``keys``, ``excluded``, ``masks`` and
    ``types`` have the publisher's names, ``defaults`` and ``generated`` have the
    lake's. ``on_error`` None means the
    setting ``default_on_error``; the other words that begin with ``on_`` and are None mean the
    settings of the same names. ``partition_by``, ``sort_by``, ``location`` and ``properties`` are
    of a lake table that pgsub makes; see ``catalog.table_layout``. ``writer`` None means
    ``lake.writer``.
    """

    to: tuple[str, str] | None = None
    adopt: bool = False
    shared: bool = False
    on_key_conflict: str | None = None  # error | overwrite
    on_unrepresentable: str = "error"  # error | null | text | clamp
    defaults: tuple[tuple[str, str], ...] = ()
    generated: tuple[tuple[str, str], ...] = ()
    keys: tuple[tuple[str, ...], ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    on_error: str | None = None  # stop | suspend
    on_schema_change: str | None = None  # follow | stop | suspend
    on_dropped_column: str | None = None  # keep | drop
    on_added_default: str | None = None  # fill | null
    on_rename: str | None = None  # follow | keep | suspend
    on_attach: str | None = None  # tell | copy
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    location: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    excluded: tuple[str, ...] = ()
    masks: tuple[tuple[str, str, str], ...] = ()  # sha256 | null | keyed-hash
    writer: str | None = None  # auto | files | spark
    types: tuple[tuple[str, str], ...] = ()

    @property
    def rules(self) -> tuple[str, ...]:
        """The published columns that the configuration of the table names under ``columns``."""
        names = [name for name, _ in (*self.columns, *self.types)]
        return tuple(dict.fromkeys([*names, *self.excluded, *(name for name, _, _ in self.masks)]))

    @property
    def left_out(self) -> tuple[str, ...]:
        """The published columns of which no value is taken."""
        return (*self.excluded, *(name for name, kind, _ in self.masks if kind == MASK_NULL))

    @property
    def hashed(self) -> dict[str, str]:
        """The published columns whose values are hashed → the environment variable with the key.

        The variable is an empty text for a hash without a key.
        """
        return {name: key for name, kind, key in self.masks if kind != MASK_NULL}

    @property
    def guarded(self) -> tuple[str, ...]:
        """The published columns whose values must not reach the lake as they are."""
        return (*self.left_out, *self.hashed)

    def lake_column(self, published: str) -> str:
        """The lake column of a published column."""
        return dict(self.columns).get(published, published)

    def lake_columns(self, published: Sequence[str], lake_table: object) -> dict[str, str]:
        """Published column → lake column, in the publisher's order, without left-out columns.

        Raises 42701 for two published columns with one lake column. A column may join later and
        meet a mapped column, so workers ask for every relation.
        """
        mapped = dict(self.columns)
        lake = {name: mapped.get(name, name) for name in published if name not in self.left_out}
        if len(set(lake.values())) == len(lake):
            return lake
        for column in lake.values():
            names = [name for name in lake if lake[name] == column]
            if len(names) > 1:
                listed = ", ".join(f'"{name}"' for name in names)
                raise DuplicateColumn(
                    f"published columns {listed} are mapped to one column of lake table "
                    f'"{lake_table}"',
                    detail=f'The lake column is "{column}".',
                    hint="Map all but one of them to other names with columns: {COLUMN: {to: "
                    "NAME}} of the table in the configuration.",
                )
        return lake


def options_of(tables: Mapping[str, TableOptions], nspname: str, relname: str) -> TableOptions:
    """What ``tables:`` of the configuration says of a published table."""
    return tables.get(qualified_name(nspname, relname), TableOptions())


@dataclass(frozen=True, slots=True)
class Subscription:
    """A row of ``pg_subscription``.

    ``generation`` is the newest worker generation. ``sysid``, ``timeline`` and ``datoid`` (the oid
    of the database) are the publisher's, as last seen. ``max_flush_lsn`` is the highest flush
    position ever sent, and is stored before the feedback is sent; at first the consistent point of
    the new slot. ``create_slot`` says that CREATE made the slot: a *creating* row found later
    allows the slot to be dropped. ``tables`` maps ``schema.table`` (see
    ``namespace.qualified_name``) to options.
    """

    subname: str
    subconninfo: str
    subpublications: tuple[str, ...]
    oid: int = 0
    subdbid: int = LAKE_DATABASE_ID
    subskiplsn: LSN = InvalidXLogRecPtr
    subowner: int = BOOTSTRAP_SUPERUSERID
    subenabled: bool = True
    subbinary: bool = False
    substream: Stream = Stream.PARALLEL
    subtwophasestate: TwoPhaseState = TwoPhaseState.DISABLED
    subdisableonerr: bool = False
    subpasswordrequired: bool = True
    subrunasowner: bool = False
    subfailover: bool = False
    subslotname: str | None = None
    subsynccommit: str = "on"
    suborigin: str = "any"
    # Columns that PostgreSQL does not have:
    subuuid: str = ""
    subcreate: SubCreate = SubCreate.CREATING
    create_slot: bool = True
    sync_slot: SyncSlot = SyncSlot.TEMPORARY
    passfile: str | None = None
    password_env: str | None = None
    generation: int = 0
    sysid: str | None = None
    timeline: int | None = None
    datoid: int | None = None
    max_flush_lsn: LSN = InvalidXLogRecPtr
    tables: Mapping[str, TableOptions] = field(default_factory=dict)
    password_command: str | None = None
    password_command_ttl: float = 0.0
    refresh: Refresh = Refresh.MANUAL

    def table_options(self, nspname: str, relname: str) -> TableOptions:
        """What the configuration says of a published table."""
        return options_of(self.tables, nspname, relname)

    def has_same_publisher(self, later: Subscription) -> bool:
        """Whether the positions of the row's publisher hold for the later row's publisher.

        The later row may know a database that the row does not: an older data directory has none.
        """
        same_database = self.datoid in (None, later.datoid)
        return same_database and (self.sysid, self.timeline) == (later.sysid, later.timeline)

    def has_other_database(self, later: Subscription) -> bool:
        """Whether the later row's database is another one: then oids of tables mean nothing."""
        pairs = ((self.sysid, later.sysid), (self.datoid, later.datoid))
        return any(None not in pair and pair[0] != pair[1] for pair in pairs)


def check_slot_name(name: str) -> None:
    """``ReplicationSlotValidateName``: 1 to 63 of a-z, 0-9 and _; 42602 or 42622."""
    if not name:
        raise InvalidName(f'replication slot name "{name}" is too short')
    if len(name.encode()) >= NAMEDATALEN:
        raise InvalidName(f'replication slot name "{name}" is too long', sqlstate=NAME_TOO_LONG)
    if not _SLOT_NAME.fullmatch(name):
        raise InvalidName(
            f'replication slot name "{name}" contains invalid character',
            hint=(
                "Replication slot names may only contain lower case letters, numbers,"
                " and the underscore character."
            ),
        )


def check_publications(names: Sequence[str]) -> None:
    """No publication may be named twice (42710)."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DuplicateObject(f'publication name "{name}" used more than once')
        seen.add(name)


def check_subscription_name(name: str) -> None:
    """Any name of 1 to 63 bytes; 42602 or 42622."""
    if not name or "\0" in name:
        raise InvalidName("a subscription needs a name")
    if len(name.encode()) >= NAMEDATALEN:
        raise InvalidName(f'subscription name "{name}" is too long', sqlstate=NAME_TOO_LONG)


def system_identifier(sub: Subscription) -> str:
    """A random 64-bit number for a subscription, like a server's system identifier."""
    return str(uuid.UUID(sub.subuuid).int >> 64)


def sync_slot_name(subid: int, relid: int, sysid: str) -> str:
    """``ReplicationSlotNameForTablesync``: the slot and application name of a sync worker."""
    return f"pg_{subid}_sync_{relid}_{sysid}"


def sync_slot_pattern(sysid: str) -> str:
    """A regular expression for the names that ``sync_slot_name`` makes with ``sysid``."""
    return f"^pg_[0-9]+_sync_[0-9]+_{sysid}$"
