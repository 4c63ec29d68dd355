"""Do a commit service and the user's Spark server have the same catalog, and the same store?

``lake.catalog`` describes the catalog to the commit service. The Spark server of ``spark.remote``
has a configuration of its own. If the two named different catalogs, a worker would fence a table in
one catalog and publish in the other: a late publication of a dead worker would go through.

Two looks keep that out. The probe of the catalog has Spark make a table, and the gateway has to
show the table with the same snapshot (``expect_table``). And every snapshot that Spark commits to
``main``, as a fence is, has to be seen through the gateway (``expect_commit``). A commit to a
branch needs no look: only the catalog of the gateway has the worker's branch.

A third look is for the store. A path of the catalog may mean a different disk, or a different
object store, on each machine: readers would not find a worker's files. So the worker has to see a
file of Spark's first (``expect_files``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.errcodes import TwoLakes
from workers.lake.interfaces.table_api import FileCommits, TableApi
from workers.lake.storage.choose_store import store_for
from workers.lake.storage.local_path import is_local
from workers.lake.table import LakeIdent


def expect_table(ident: LakeIdent, tables: TableApi, spark: TableApi) -> None:
    """55000 unless ``tables`` and ``spark`` show the table with the same snapshots."""
    here, there = tables.describe(ident), spark.describe(ident)
    if here is None or there is None or here.history.refs != there.history.refs:
        raise _two_catalogs(ident)


def expect_commit(
    ident: LakeIdent, metadata: Mapping[str, Any], summary: Mapping[str, str]
) -> None:
    """55000 unless a snapshot in the gateway's ``metadata`` has what Spark has just committed."""
    wanted = summary.items()
    if not any(wanted <= each["summary"].items() for each in metadata.get("snapshots", ())):
        raise _two_catalogs(ident)


def expect_files(ident: LakeIdent, commits: FileCommits) -> None:
    """55000 unless the table's store here has the table's manifests, which Spark wrote.

    Spark writes the tables of a store that a worker cannot reach. Names contain a UUID.
    """
    metadata, store = commits.metadata_and_store(ident, f'reading lake table "{ident}"')
    if store is None and is_local(metadata["location"]):
        store = store_for(metadata["location"])
    if store is None:
        return
    for snapshot in metadata.get("snapshots", ()):
        folder, _, name = snapshot.get("manifest-list", "").rpartition("/")
        if store.holds(folder) and not store.list_prefix(folder, name):
            raise TwoLakes(
                "the commit service and the Spark server do not have the same store",
                detail=f'The Spark server wrote a file of lake table "{ident}". The file is '
                "missing on the machine of the data directory.",
                hint="Name a store in lake.catalog that both machines reach by the same "
                "address, or say spark.commit_service: off.",
            )


def _two_catalogs(ident: LakeIdent) -> TwoLakes:
    return TwoLakes(
        "the commit service and the Spark server do not have the same catalog",
        detail=f'In lake table "{ident}" one of them does not see what the other has committed.',
        hint="Describe in lake.catalog the catalog that the server in spark.remote has under the "
        "name lake, or say spark.commit_service: off.",
    )
