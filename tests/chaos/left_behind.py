"""What a seed leaves in the store, besides the files of its tables, when all has caught up.

A file is known if a snapshot of a table names it, or a list of an expiry (``file_grace``). Others
are orphan files: of killed batches, which the orphan removal takes after days. Versions of a
table's metadata are the catalog's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from catalog.store_sqlite import CatalogStore
from tests.lake.lake_stack import LakeStack
from workers.lake.table import BRANCH_PREFIX

if TYPE_CHECKING:
    from pyiceberg.table import Table


def orphan_files(stack: LakeStack, data_dir: Path, schemas: Sequence[str]) -> list[str]:
    """Files of these schemas that nobody knows, and files outside of the warehouse."""
    tables = stack.tables(*schemas)
    known = {path for table in tables for path in _files_of(table)}
    with closing(CatalogStore.open(data_dir)) as store:
        for table in tables:
            schema, name = table.name()[-2:]
            for each in store.expired_files_of_table(schema, name):
                known.update(each.files)
    known = {_key(path) for path in known}
    folder = _key(stack.catalog.warehouse)
    ours = tuple(f"{folder}/{schema}/" for schema in schemas)
    return [
        path
        for path in stack.store.files(keys=stack.keys)
        if path not in known
        and not path.endswith(".metadata.json")
        and (path.startswith(ours) or not path.startswith(f"{folder}/"))
    ]


def needless_branches(stack: LakeStack, schemas: Sequence[str]) -> list[str]:
    """Branches of tables that have more of ours than the next batch's."""
    found = []
    for table in stack.tables(*schemas):
        branches = [ref for ref in table.metadata.refs if ref.startswith(BRANCH_PREFIX)]
        found += [f"{table.name()[-1]}: {branches}"] * (len(branches) > 1)
    return found


def _files_of(table: Table) -> Iterator[str]:
    for snapshot in table.metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io):
                yield entry.data_file.file_path
    for statistics in table.metadata.statistics:
        yield statistics.statistics_path


def _key(location: str) -> str:
    """Bucket and key, as the store's listing has them."""
    return location.partition("://")[2] or location
