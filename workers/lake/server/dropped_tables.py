"""Forget what pgsub's catalog keeps of lake tables that were dropped.

The catalog keeps three kinds of rows longer than a subscription: the metadata file of a lake table
that is on the disk, the oid of a lake table, and the uuid of a dropped subscription. Lake tables
outlive their subscription, so a DROP cannot remove the rows; and a user who drops a lake table says
nothing to pgsub. A publisher with a new table every day would leave rows for every name for ever.

The embedded lake's own catalog tells which tables there are. A row of a table without a pointer is
forgotten at every start of the lake server, and when a table or a subscription leaves. The rows are
read before the pointers: a table has a pointer before the table has a row. A row that has changed
since then stays. With another catalog nothing is forgotten, because each name would be a question.

A dropped subscription is forgotten when no lake table names the subscription as its owner. To know
the owners, every table's metadata file is read. So the look waits until the dropped subscriptions
outnumber the lake tables. After a power cut a table may have an earlier owner again: the owner of
the table's durable metadata file, or of the file before the present file. These owners count, too.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from catalog.store_sqlite import CatalogStore
from config.lake import embedded_catalog_file
from workers.lake.metadata.snapshots import OWNER
from workers.lake.server.whole_table import LostFileError, read_metadata
from workers.lake.storage.catalog_pointers import CatalogPointers, Pointer
from workers.lake.storage.local_path import is_local
from workers.lake.table import LakeIdent

log = logging.getLogger(__name__)


def forget_what_left(data_dir: Path, store: CatalogStore) -> None:
    """When tables leave: forget dropped lake tables, and dropped subscriptions without lake tables.

    A lake that cannot be read now is left to the next time.
    """
    with suppress(sqlite3.Error):
        forget_dropped_tables(data_dir, store)
        _forget_former_owners(data_dir, store)


def forget_dropped_tables(data_dir: Path, store: CatalogStore) -> None:
    """Forget durable files and oids of tables that the lake lacks. Raises ``sqlite3.Error``."""
    durable = store.lake_durable()
    relations = store.unused_lake_relations()
    pointers = _embedded_pointers(data_dir, store)
    if pointers is None:
        return
    known = {pointer.ident for pointer in pointers}
    with store.transaction():
        for schema, table, location in durable:
            if LakeIdent(schema, table) not in known:
                store.forget_lake_durable(schema, table, location)
        for oid, schema, table in relations:
            if LakeIdent(schema, table) not in known:
                store.forget_lake_relation(oid)


def _forget_former_owners(data_dir: Path, store: CatalogStore) -> None:
    owners = store.former_owners()
    durable = {LakeIdent(schema, table): at for schema, table, at in store.lake_durable()}
    pointers = _embedded_pointers(data_dir, store)
    if pointers is None or len(owners) <= len(pointers):
        return
    owning: set[str] = set()
    try:
        for pointer in pointers:
            owning |= _owners(pointer, durable)
    except LostFileError as lost:
        log.debug("action=former_owners_unknown an owner is not known, the file %s", lost)
        return
    with store.transaction():
        for subuuid in owners:
            if subuuid not in owning:
                store.forget_former_owner(subuuid)


def _owners(pointer: Pointer, durable: Mapping[LakeIdent, str]) -> set[str]:
    """The owners in every state that the table may be in. Raises ``LostFileError``."""
    found = {str(_owner(pointer.location))}
    for location in (pointer.previous, durable.get(pointer.ident)):
        if location is not None and location != pointer.location:
            with suppress(LostFileError):  # a file that is gone is no state of the table
                found.add(str(_owner(location)))
    return found


def _owner(location: str) -> object:
    if not is_local(location):
        raise LostFileError(f'"{location}" is in another store')
    return (read_metadata(location).get("properties") or {}).get(OWNER)


def _embedded_pointers(data_dir: Path, store: CatalogStore) -> list[Pointer] | None:
    """The tables of the embedded lake; None if the lake has another catalog."""
    stored = store.settings()
    file = embedded_catalog_file(data_dir)
    elsewhere = (stored.get("lake") or {}).get("catalog") or (stored.get("spark") or {}).get(
        "remote"
    )
    if elsewhere or not file.exists():
        return None
    return CatalogPointers(file).all()
