"""The catalog's rows in SQLite, written and read back.

SQLite has neither booleans nor LSNs nor arrays: a boolean is 0 or 1, an LSN 16 hexadecimal
digits (text order is LSN order), a list or a mapping is JSON.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import ReplicationOrigin
from catalog.pg_subscription import (
    Refresh,
    Stream,
    SubCreate,
    Subscription,
    SyncSlot,
    TableOptions,
    TwoPhaseState,
)
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel


class StoredRow(Protocol):
    """A row from the database, for example a ``sqlite3.Row``."""

    def keys(self) -> list[str]:
        """The names of the columns."""

    def __iter__(self) -> Iterator[Any]:
        """The values."""


def encode_lsn(lsn: LSN) -> str:
    """``lsn`` as 16 hexadecimal digits."""
    return f"{int(lsn):016X}"


def decode_lsn(text: str) -> LSN:
    """The inverse of ``encode_lsn``."""
    return LSN(int(text, 16))


def subscription_values(row: Subscription) -> dict[str, object]:
    """A subscription as named parameters of the statements."""
    values = _values(row)
    values["subpublications"] = json.dumps(row.subpublications)
    values["tables"] = json.dumps(
        {name: dataclasses.asdict(options) for name, options in row.tables.items()}
    )
    return values


def subscription_row(row: StoredRow) -> Subscription:
    """The inverse of ``subscription_values``."""
    values = _columns(row)
    for name in ("subskiplsn", "max_flush_lsn"):
        values[name] = decode_lsn(values[name])
    for name in (
        "subenabled",
        "subbinary",
        "subdisableonerr",
        "subpasswordrequired",
        "subrunasowner",
        "subfailover",
        "create_slot",
    ):
        values[name] = bool(values[name])
    values["substream"] = Stream(values["substream"])
    values["subtwophasestate"] = TwoPhaseState(values["subtwophasestate"])
    values["subcreate"] = SubCreate(values["subcreate"])
    values["sync_slot"] = SyncSlot(values["sync_slot"])
    values["refresh"] = Refresh(values["refresh"])
    values["subpublications"] = tuple(json.loads(values["subpublications"]))
    values["tables"] = {
        name: _table_options(options) for name, options in json.loads(values["tables"]).items()
    }
    return Subscription(**values)


def rel_values(row: SubscriptionRel) -> dict[str, object]:
    """A table of a subscription as named parameters of the statements."""
    return {**_values(row), "former_names": json.dumps(row.former_names)}


def rel_row(row: StoredRow) -> SubscriptionRel:
    """The inverse of ``rel_values``."""
    values = _columns(row)
    values["srsubstate"] = SubRelState(values["srsubstate"])
    for name in ("floor", "lake_lsn"):
        values[name] = decode_lsn(values[name])
    for name in ("srsublsn", "suspend_lsn"):
        if values[name] is not None:
            values[name] = decode_lsn(values[name])
    for name in ("copied", "recopy", "resuming"):
        values[name] = bool(values[name])
    values["former_names"] = tuple(json.loads(values["former_names"]))
    return SubscriptionRel(**values)


def origin_row(row: StoredRow) -> ReplicationOrigin:
    """The origin of a row from the database."""
    values = _columns(row)
    values["remote_lsn"] = decode_lsn(values["remote_lsn"])
    return ReplicationOrigin(**values)


def _columns(row: StoredRow) -> dict[str, Any]:
    return dict(zip(row.keys(), row, strict=True))  # a look-up by name takes five times as long


def _values(row: Subscription | SubscriptionRel) -> dict[str, object]:
    fields = (field.name for field in dataclasses.fields(row))
    return {name: _scalar(getattr(row, name)) for name in fields}


def _scalar(value: object) -> object:
    if isinstance(value, LSN):
        return encode_lsn(value)
    if isinstance(value, bool):
        return int(value)
    return str(value) if isinstance(value, str) else value


def _table_options(stored: Mapping[str, Any]) -> TableOptions:
    to = stored["to"]
    lists = {
        name: tuple(tuple(each) for each in stored.get(name, ()))
        for name in ("defaults", "generated", "keys", "columns", "properties", "masks", "types")
    }
    words = {name: tuple(stored.get(name, ())) for name in ("partition_by", "sort_by", "excluded")}
    return TableOptions(**{**stored, **lists, **words, "to": tuple(to) if to else None})
