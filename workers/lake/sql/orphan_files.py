"""Files in a table's folder that no snapshot knows: what a killed batch, or copy, had written.

``remove_orphan_files`` compares a listing of the folder with the files of all snapshots, of
whatever ref and of none. Paths are compared without scheme and authority where the metadata has
none, so ``file:/x``, ``file:///x`` and ``/x`` are one file; a scheme that differs is an error and
nothing is removed. It cannot know what it cannot see, and that is looked at here first:

- A table that was dropped and made anew, by another subscription or data directory, has the name
  of ours and is not. It says whose it is.
- A folder may hold more than the table: other tables below it, or another catalog's entry for the
  same files. So only folders that were named by us are looked into; their names were never used
  before.
- A folder may have two names: a table that was moved, behind a link. Each file is then known by
  another name than it is listed by. So every file that the metadata knows must be in the folder
  by the name that the table gives it. A folder that is a link is not ours to look into.
- A file belongs to no snapshot before its commit, and the first file of a copy may be days older
  than that. A table that is copied alone is not looked at; in a shared one the branch tells
  that a source is being copied: it is made before the first file is written and dropped at the
  end. Everything else is written and committed within the minimum age, which Iceberg does not let
  be less than a day.

Trace: a source of a shared table is copied for four days, into its branch. At the third day its
first files are older than the minimum age; the branch is there, nothing is removed. At the fifth
day the copy is published, and its files belong to a snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISLNK
from typing import Any, Final

from sqlglot import exp

from workers.lake.connect.errors import FileMissing
from workers.lake.connect.session import LakeSession
from workers.lake.effects import Orphans
from workers.lake.metadata.table_location import is_own_folder
from workers.lake.sql.statements import OWNER, call, identifier, name_of, sql_text, table_path, text
from workers.lake.sql.table_metadata import read_properties
from workers.lake.table import BRANCH_PREFIX, LakeIdent

_COPYING: Final = re.compile(rf"{BRANCH_PREFIX}[0-9a-f]{{32}}_[1-9][0-9]*_.*", re.S)
"""A branch of a sync worker of a shared table (``shared_targets.branches_of``)."""
_KNOWN: Final[Mapping[str, str]] = {
    "all_files": "file_path",
    "all_manifests": "path",
    "snapshots": "manifest_list",
    "metadata_log_entries": "file",
}
"""Metadata table → its column of paths: everything that is compared with the listing."""
_TRUE: Final = "true"


def remove_orphans(
    session: LakeSession, ident: LakeIdent, *, owner: str, older_than: float
) -> Orphans:
    """Remove what no snapshot knows and was last changed before ``older_than`` (Unix time).

    One call lists the folder and reads all manifests; it commits nothing. A worker of another
    source may expire snapshots meanwhile, and delete manifests that are still to be read: nothing
    was removed then, and it is tried once more.
    """
    for _ in range(2):
        with suppress(FileMissing):
            return _remove(session, ident, owner, older_than)
    return Orphans(left="its snapshots expired meanwhile, or a file that they name is lost")


def _remove(session: LakeSession, ident: LakeIdent, owner: str, older_than: float) -> Orphans:
    what = f'removing orphan files of lake table "{ident}"'
    session.limit_parallelism()
    folder = _folder(session, ident, what)
    left = (
        _not_ours(session, ident, folder, owner)
        or _being_copied(session, ident, what)
        or _elsewhere(session, ident, f"{folder}/", what)
    )
    if left is not None:
        return Orphans(left=left)
    before = datetime.fromtimestamp(int(older_than), UTC).isoformat(" ")
    found = session.call(
        call(
            "remove_orphan_files",
            ident,
            location=folder,  # no other than what was looked at
            older_than=exp.Var(this=f"TIMESTAMP '{before}'"),
            prefix_listing=exp.Boolean(this=lists_by_prefix(folder)),
            # The answer names 20,000 files at most; all are removed.
            stream_results=exp.true(),
        ),
        what,
    )
    return Orphans(found.num_rows if found is not None else 0)


def _folder(session: LakeSession, ident: LakeIdent, what: str) -> str:
    """Where the table writes: its newest metadata file is in ``metadata`` there.

    Spark shows a table's location only among the words of DESCRIBE, where a column may have any.
    """
    newest = f"max_by({name_of(identifier('file'))}, {name_of(identifier('timestamp'))})"
    rows = session.query(
        sql_text("SELECT", newest, "FROM", table_path(ident, "metadata_log_entries")), what
    )
    return str(rows.column(0)[0].as_py() or "").rpartition("/metadata/")[0]


def _not_ours(session: LakeSession, ident: LakeIdent, folder: str, owner: str) -> str | None:
    properties = read_properties(session, ident)
    if properties.get(OWNER) != owner:
        return "it belongs to somebody else: its property pgsub.owner is not this subscription's"
    if not is_own_folder(folder):
        return "its folder was not named by pgsub, and may hold more than this table"
    try:
        if _is_linked(folder):
            return "its folder, or data or metadata in it, is a link"
    except OSError:
        return "its folder cannot be looked at"
    if properties.get("gc.enabled", _TRUE).lower() != _TRUE:
        return "its property gc.enabled is false"
    return None


def _is_linked(folder: str) -> bool:
    """Where we can see it: the server's listing of a link is the link, again and again.

    What is not there is no link. Raises ``OSError`` where that cannot be told.
    """
    top = Path(folder.removeprefix("file://").removeprefix("file:"))
    if not top.is_absolute():
        return False  # an object store's
    for path in (top, top / "data", top / "metadata"):
        with suppress(FileNotFoundError):
            if S_ISLNK(path.lstat().st_mode):
                return True
    return False


def lists_by_prefix(folder: str) -> bool:
    """Whether the table's own FileIO lists the folder, or Hadoop's file system.

    Hadoop may not know an object store that the catalog has a FileIO for. On a local disk that
    would never come to an end with a link to a folder; Hadoop goes 2,000 levels down and gives up.
    """
    scheme, separator, _ = folder.partition("://")
    return bool(separator) and scheme != "file"


def _being_copied(session: LakeSession, ident: LakeIdent, what: str) -> str | None:
    rows = session.query(
        sql_text("SELECT name FROM", table_path(ident, "refs"), "WHERE type = 'BRANCH'"), what
    )
    names: list[Any] = rows.column(0).to_pylist()
    copying = next((name for name in sorted(names) if _COPYING.fullmatch(name)), None)
    return copying and f'a source is being copied, or its copy was given up: branch "{copying}"'


def _elsewhere(session: LakeSession, ident: LakeIdent, folder: str, what: str) -> str | None:
    """``folder`` with a slash at its end: a name that goes on is another."""
    known = " UNION ALL ".join(
        sql_text("SELECT", identifier(column), "AS p FROM", table_path(ident, table))
        for table, column in _KNOWN.items()
    )
    # As startswith it would be Iceberg's to look for, which sees no manifest that does not.
    inside = sql_text("left(p, length(", text(folder), ")) =", text(folder))
    rows = session.query(sql_text("SELECT count(*) FROM (", known, ") WHERE NOT", inside), what)
    outside = int(rows.column(0)[0].as_py())
    return f"{outside} of the files it knows are not in its folder" if outside else None
