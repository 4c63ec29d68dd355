"""What the catalog keeps of lake tables by name, also after a table left its subscription.

Three kinds of rows outlive a subscription: the durable metadata file of a lake table, the oid of a
lake table, and the uuid of a dropped subscription that may own lake tables. A row is of use while
the lake has the table. ``workers.lake.server.dropped_tables`` forgets the other rows.
"""

from __future__ import annotations

from collections.abc import Iterable

from catalog.sqlite_file import CatalogFile


class LakeNames(CatalogFile):
    """Durable metadata files, oids and former owners of lake tables."""

    def put_lake_durable(self, tables: Iterable[tuple[str, str, str]]) -> None:
        """Store the metadata files that are on the disk: (lake schema, lake table, location)."""
        with self.transaction():
            for row in tables:
                self._write("put_lake_durable", _durable(*row))

    def lake_durable(self) -> list[tuple[str, str, str]]:
        """What ``put_lake_durable`` stored last of each lake table."""
        return self._all("lake_durable", lambda row: (row[0], row[1], row[2]))

    def forget_lake_durable(self, schema: str, table: str, location: str) -> None:
        """Forget a metadata file, unless the lake table has another durable file by now."""
        self._write("forget_lake_durable", _durable(schema, table, location))

    def former_owners(self) -> set[str]:
        """The uuids of dropped subscriptions: a new subscription may adopt their lake tables."""
        return set(self._all("former_owners", lambda row: str(row[0])))

    def forget_former_owner(self, subuuid: str) -> None:
        """Forget a dropped subscription that owns no lake table."""
        self._write("forget_former_owner", {"subuuid": subuuid})

    def unused_lake_relations(self) -> list[tuple[int, str, str]]:
        """(oid, lake schema, lake table) without a row of a subscription."""
        return self._all("unused_lake_relations", lambda row: (row[0], row[1], row[2]))

    def forget_lake_relation(self, oid: int) -> None:
        """Forget the oid of a lake table, unless a subscription has the table by now."""
        self._write("forget_lake_relation", {"oid": oid})


def _durable(schema: str, table: str, location: str) -> dict[str, str]:
    return {"lake_schema": schema, "lake_table": table, "metadata_location": location}
