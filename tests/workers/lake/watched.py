"""A table of the real lake, what its metadata says and what is in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from tests.workers.lake.contract import COLUMNS, PUBLISHED, Change, Table, append, stamp
from workers.lake.metadata.snapshots import LSN_KEY
from workers.lake.segment import RowsOf, Segment
from workers.lake.sql.statements import create_namespace, sql_text, table_path
from workers.lake.staged_rows import Staged
from workers.lake.storage.local_path import local_path
from workers.lake.table import LakeColumn, LakeIdent

NEVER = 99
"""A position that no table has."""


def update(key: int, to: int | None = None, v: str = "new") -> Change:
    return (0, key, key if to is None else to, v, None, False)


def delete(key: int) -> Change:
    return (1, key, None, None, None, False)


class Watched(Table):
    """One of a destination that has a gateway."""

    def __init__(
        self, dest: Any, ident: LakeIdent, columns: Sequence[LakeColumn] = COLUMNS
    ) -> None:
        self.dest, self.ident, self.attempt = dest, ident, 0
        dest.create_table(ident, columns, owner="me", relid=7, stamp=stamp(10))

    @property
    def session(self) -> Any:
        dest: Any = self.dest
        return dest._sessions.get()

    def command(self, words: str, more: str) -> None:
        self.session.command(sql_text(words, table_path(self.ident), more), "preparing a test")

    def query(self, what: str, *metadata: str) -> list[tuple[Any, ...]]:
        sql = sql_text(f"SELECT {what} FROM", table_path(self.ident, *metadata))
        found = self.session.query(sql, "looking")
        return [tuple(row.values()) for row in found.to_pylist()]

    @property
    def metadata(self) -> Mapping[str, Any]:
        dest: Any = self.dest
        found: Mapping[str, Any] = dest._tables.metadata(self.ident, "looking")
        return found

    def tip(self, ref: str = "main") -> int | None:
        found = self.metadata["refs"].get(ref)
        return None if found is None else int(found["snapshot-id"])

    def commits(self, ref: str) -> list[str | None]:
        """The positions that a ref's snapshots bear, its tip's first; None for one without."""
        metadata = self.metadata
        snapshots = {each["snapshot-id"]: each for each in metadata["snapshots"]}
        at, found = metadata["refs"][ref]["snapshot-id"], []
        while at is not None:
            found.append(snapshots[at]["summary"].get(LSN_KEY))
            at = snapshots[at].get("parent-snapshot-id")
        return found

    def on_disk(self) -> set[str]:
        """The files of rows and of deletes."""
        folder = local_path(self.metadata["location"]) / "data"
        return {path.name for path in folder.rglob("*.parquet")}

    def by_spark(self) -> int:
        """How many of them are not our own."""
        return sum(not name.startswith("pgsub-") for name in self.on_disk())

    def own_rows(self, rows: Sequence[tuple[int, str | None, str | None]]) -> Staged:
        """Rows that lie in the table's folder, as many of them do."""
        types = (pa.int64(), pa.string(), pa.string())
        values = zip(*rows, strict=True) if rows else ((), (), ())
        columns = zip(values, types, strict=True)
        table = pa.table({f"c{n}": pa.array(*column) for n, column in enumerate(columns)})
        rows_of = RowsOf(self.ident, PUBLISHED, in_files=not rows)
        staged = self.dest.stage(table.to_batches(max_chunksize=7), table.schema, rows_of)
        assert staged.own is not None
        return staged

    def refused(self, segments: Sequence[Segment], branch: str | None = None) -> ReplicationError:
        """The error of a batch that has left nothing to be published."""
        with pytest.raises(ReplicationError) as error:
            self.dest.write(self.ident, branch or self.branch(), segments, stamp(NEVER))
        positions = [each["summary"].get(LSN_KEY) for each in self.metadata["snapshots"]]
        assert str(stamp(NEVER).lsn) not in positions
        return error.value


class Adopted(Watched):
    """One that somebody else has made."""

    def __init__(self, dest: Any, ident: LakeIdent, definition: str) -> None:
        self.dest, self.ident, self.attempt = dest, ident, 0
        self.session.command(create_namespace(ident), "preparing a test")
        self.command("CREATE TABLE", definition)
        dest.adopt_table(ident, owner="me", stamp=stamp(10))


def with_rows(table: Watched, count: int) -> Watched:
    """Rows from 0 on, in one file."""
    rows = [(n, f"v{n}", f"big{n}") for n in range(count)]
    table.batch([append(table.dest, rows)], 20)
    return table
