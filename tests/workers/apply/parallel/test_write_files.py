"""Which tables of a piece get files, and why the others do not."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import InvalidXLogRecPtr
from catalog.pg_subscription import TableOptions
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from tests.workers.changes.test_changes_ahead import delete, insert, update
from tests.workers.changes.test_segments import COLUMNS, IDENT, STAMP, A
from tests.workers.file_lake import FileLake
from tests.workers.transactions import batch
from workers.apply.parallel.write_files import Rows, write_files
from workers.changes.by_table import frame_batch
from workers.changes.changes_ahead import NoFiles
from workers.changes.relation_map import LogicalRepRelMap
from workers.lake.memory.lake import MemoryLake
from workers.lake.staged_rows import Staged
from workers.proto.messages import Message
from workers.tables.open_table import OpenTable


@pytest.fixture
def dest() -> FileLake:
    return FileLake(MemoryLake(), 1)


def rows(dest: FileLake, *changes: Message, **options: Any) -> Rows:
    lake = dest.table(IDENT) or dest.create_table(IDENT, COLUMNS, owner="u", relid=1, stamp=STAMP)
    rel = SubscriptionRel(1, 1, SubRelState.READY, None, "public", "a", IDENT.schema, IDENT.table)
    framed = frame_batch(batch([A, *changes]), LogicalRepRelMap())
    (run,) = framed.runs_of_all(("public", "a"))
    return Rows(
        run,
        OpenTable(rel, lake, InvalidXLogRecPtr, InvalidXLogRecPtr, None),
        TableOptions(**options),
    )


def test_tables_get_files_or_a_reason(dest: FileLake) -> None:
    piece = {
        1: rows(dest, *(insert(key, 1) for key in range(5))),
        2: rows(dest, *(update(key, 1) for key in range(5)), delete(9)),
        3: rows(dest, insert(1, 1)),
        4: rows(dest, *(delete(key) for key in range(5))),
        5: rows(dest, *(update(key, 1) for key in range(5)), keys=(("v",),)),
    }
    written = write_files(piece, dest, "id")
    assert {relid: files.kinds for relid, files in written.files.items()} == {
        1: (5, 0, 0),
        2: (0, 5, 1),
    }
    assert written.without == {3: NoFiles.FEW, 4: NoFiles.FEW, 5: NoFiles.WAIT}
    assert written.waiting == {5}
    assert len(dest.files) == 2
    for files in written.files.values():
        files.work.discard()
    assert (dest.files, dest.staged) == ({}, 0)


def test_an_error_leaves_no_file(dest: FileLake, monkeypatch: pytest.MonkeyPatch) -> None:
    first = rows(dest, *(insert(key, 1) for key in range(5)))
    bad = rows(dest, *(insert(key, 1) for key in range(5)))
    stage, staged = dest.stage, list[Staged]()

    def failing(*given: Any, **more: Any) -> Staged:
        if staged:
            raise ReplicationError("no space left", sqlstate="53100")
        staged.append(stage(*given, **more))
        return staged[-1]

    monkeypatch.setattr(dest, "stage", failing)
    with pytest.raises(ReplicationError):
        write_files({1: first, 2: bad}, dest, "id")
    assert len(staged) == 1
    assert dest.files == {}
