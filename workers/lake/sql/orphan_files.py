"""Remove orphan files: files in a table's folder that no snapshot has, of a killed batch or copy.

``remove_orphan_files`` compares a listing of the folder with the files of all snapshots, of every
ref and of no ref. Paths are compared without scheme and authority if the metadata have none, so
``file:/x``, ``file:///x`` and ``/x`` are the same file. A different scheme is an error, and no file
is removed. The procedure cannot notice some dangers, so this module checks first:

- A table that was dropped and created anew, by another subscription or data directory, has the
  same name and another owner. The table's property names the owner.
- A folder may hold more than the table: tables in subfolders, or another catalog's entry for the
  same files. So only folders with a name from pgsub are listed; pgsub never uses a name twice.
- A folder may have two names: a table was moved, and a link stands at the earlier place. Then the
  listing has different names than the metadata. So every file in the metadata must be in the folder
  by the name in the metadata, and a folder behind a link is left alone.
- A file belongs to no snapshot before the commit, and the first file of a copy may be days older
  than the commit. A table with a single owner is left alone during the copy. In a shared table a
  branch tells of the copy: the worker creates the branch before the first file and drops the
  branch at the end. All remaining files are written and committed within the minimum age, and
  Iceberg refuses a minimum age below a day.
- A file of an expired snapshot waits on a list until readers have ended, and the file may be old.
  Another worker may begin a list at any time. So where expiries list files, the procedure only
  names orphan files, and then the files outside the lists are removed.

Trace: a source of a shared table is copied for four days, into a branch. On the third day the first
files are older than the minimum age; the branch exists, so no file is removed. On the fifth day the
copy is published, and the files belong to a snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISLNK
from typing import Any, Final

from sqlglot import exp

from workers.lake.connect.errors import FileMissing
from workers.lake.connect.session import LakeSession
from workers.lake.effects import Orphans
from workers.lake.metadata.snapshots import OWNER
from workers.lake.metadata.table_location import is_own_folder
from workers.lake.sql.statements import call, identifier, name_of, sql_text, table_path, text
from workers.lake.sql.table_metadata import read_properties
from workers.lake.table import BRANCH_PREFIX, LakeIdent

_COPYING: Final = re.compile(rf"{BRANCH_PREFIX}[0-9a-f]{{32}}_[1-9][0-9]*_.*", re.S)
"""A branch of a sync worker of a shared table (``sources.branches_of``)."""
_KNOWN: Final[Mapping[str, str]] = {
    "all_files": "file_path",
    "all_manifests": "path",
    "snapshots": "manifest_list",
    "metadata_log_entries": "file",
}
"""Metadata table → column of paths: all paths that are compared with the listing."""
_TRUE: Final = "true"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?=/)")


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """``listed`` returns the orphan files to keep; ``remove`` removes files, and returns how many.

    An expiry by another worker adds to the list before the expiry commits. So the list is read
    after the orphan files are named. ``lists_expiries`` is False if no expiry adds to the list:
    then, without a list, the procedure removes the orphan files itself.
    """

    listed: Callable[[], Collection[str]] = tuple
    remove: Callable[[Sequence[str]], int] = len
    lists_expiries: bool = False


_NOTHING_KEPT: Final = KeptFiles()


def remove_orphans(
    session: LakeSession,
    ident: LakeIdent,
    *,
    owner: str,
    older_than: float,
    kept: KeptFiles = _NOTHING_KEPT,
) -> Orphans:
    """Remove files that no snapshot has and that were last changed before a Unix time.

    A single call lists the folder and reads all manifests, and commits nothing. A worker of another
    source may expire snapshots meanwhile, and delete manifests before the call reads them: then no
    file was removed, and the second try follows.
    """
    for _ in range(2):
        with suppress(FileMissing):
            return _remove(session, ident, owner, older_than, kept)
    return Orphans(left="its snapshots expired meanwhile, or a file that they name is lost")


def _remove(
    session: LakeSession, ident: LakeIdent, owner: str, older_than: float, kept: KeptFiles
) -> Orphans:
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
    only_name = kept.lists_expiries or bool(kept.listed())
    before = datetime.fromtimestamp(int(older_than), UTC).isoformat(" ")
    found = session.call(
        call(
            "remove_orphan_files",
            ident,
            location=folder,  # exactly the folder that was checked
            older_than=exp.Var(this=f"TIMESTAMP '{before}'"),
            prefix_listing=exp.Boolean(this=lists_by_prefix(folder)),
            # The answer names 20,000 files at most. The call removes all, or else the next removal
            # names the rest.
            stream_results=exp.true(),
            dry_run=exp.Boolean(this=only_name),
        ),
        what,
    )
    if not only_name:
        return Orphans(found.num_rows if found is not None else 0)
    names: list[Any] = found.column(0).to_pylist() if found is not None else []
    return Orphans(_remove_unlisted(names, kept))


def _remove_unlisted(names: Sequence[str], kept: KeptFiles) -> int:
    listed = {_without_scheme(name) for name in kept.listed()}
    unlisted = [name for name in names if _without_scheme(name) not in listed]
    return kept.remove(unlisted) if unlisted else 0


def _without_scheme(path: str) -> str:
    """The path as Iceberg compares it: ``file:/x``, ``file:///x`` and ``/x`` are equal."""
    return _SCHEME.sub("", path).lstrip("/")


def _folder(session: LakeSession, ident: LakeIdent, what: str) -> str:
    """The table's folder: the parent of the ``metadata`` folder with the newest metadata file.

    Spark shows a table's location only in the text of DESCRIBE, and columns may have any name.
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
    """Is the folder a link, or ``data`` or ``metadata`` inside? Only for folders on this machine.

    A link inside a listing leads back to the folder, again and again. A missing folder is no link.
    Raises ``OSError`` if the folder cannot be read.
    """
    top = Path(folder.removeprefix("file://").removeprefix("file:"))
    if not top.is_absolute():
        return False  # an object store
    for path in (top, top / "data", top / "metadata"):
        with suppress(FileNotFoundError):
            if S_ISLNK(path.lstat().st_mode):
                return True
    return False


def lists_by_prefix(folder: str) -> bool:
    """Does the table's FileIO list the folder, rather than Hadoop's file system?

    Hadoop may not know an object store for which the catalog has a FileIO. On a local disk a FileIO
    would list a link to a folder without end; Hadoop goes 2,000 levels down and gives up.
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
    """Files outside of ``folder``, which ends in a slash: ``/lake/t2`` is not in ``/lake/t``."""
    known = " UNION ALL ".join(
        sql_text("SELECT", identifier(column), "AS p FROM", table_path(ident, table))
        for table, column in _KNOWN.items()
    )
    # Not startswith: Iceberg would take the condition over, and skip manifests by the condition.
    inside = sql_text("left(p, length(", text(folder), ")) =", text(folder))
    rows = session.query(sql_text("SELECT count(*) FROM (", known, ") WHERE NOT", inside), what)
    outside = int(rows.column(0)[0].as_py())
    return f"{outside} of the files it knows are not in its folder" if outside else None
