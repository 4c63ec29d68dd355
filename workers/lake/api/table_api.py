"""Iceberg's own Java API in the lake server, through the gateway that PySpark has for Python.

Spark SQL has no words for "these files are the table's from now on": what a worker had written it
handed to Spark, which read it and wrote it once more. Iceberg's API takes a file in with one
commit, of rows and of deletes, on a branch and with a snapshot's properties. A PySpark program
reaches it as ``spark._jvm``; the embedded server begins as such a program's JVM does, so workers
reach it too, by a port on the loopback interface and a secret.

Nothing here can be taken back by ``release_sessions``: a call whose worker is dead goes on and
commits. So only such calls are made as may come late: those that read; commits to a *branch* of
the caller's generation, which may grow, or come to be again, without harm to anybody once nobody
will publish it; the making of a table, refused where a successor has made it; the fast-forward of
``main`` to such a branch, refused behind a successor's fence; and expiries, which say by a time
what is old. Nothing else moves ``main``.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from catalog.errcodes import FamilyProcessGone
from config.limits import LISTED_FILES
from workers.lake.api.connection import connect
from workers.lake.api.java_api import _Api
from workers.lake.connect.errors import LakeFailure, as_replication_error, repeated
from workers.lake.connect.lake_url import GATEWAY
from workers.lake.refusals import changed_meanwhile
from workers.lake.staged_rows import FileList, LayoutId, LiveFile, NewFile
from workers.lake.storage.choose_store import store_for
from workers.lake.storage.store import TableStore
from workers.lake.table import MAIN, LakeIdent

_CAUSES: Final = 8
_NO_SNAPSHOT: Final = -1
_FOR_EVER: Final = 2**63 - 1
_MISSING: Final = re.compile(
    r"org\.apache\.iceberg\.exceptions\.NoSuch\w*(Table|Namespace)Exception\b"
)


@dataclass(frozen=True, slots=True)
class Totals:
    """What a branch's files hold after a commit: ``rows``, deleted ones included, and how many are
    ``dead``; the snapshot ``tip``, and the one ``before``. ``idle_deletes`` are files of deletes
    beyond one for each data file, below zero for fewer."""

    rows: int
    dead: int
    tip: int
    before: int | None
    idle_deletes: int = 0


def gateway_of(url: str) -> Gateway | None:
    """The gateway that a lake server's URL tells of."""
    for parameter in url.partition("/;")[2].split(";"):
        name, _, value = parameter.partition("=")
        if name == GATEWAY:
            port, _, secret = value.partition(".")
            return Gateway(int(port), secret)
    return None


class Gateway:
    """A worker's connections to the gateway: any thread may call, each in one of its own."""

    def __init__(self, port: int, secret: str) -> None:
        self._gateway = connect(port, secret)
        self._lock = threading.Lock()
        self._api: _Api | None = None

    def metadata(self, ident: LakeIdent, what: str) -> Mapping[str, Any]:
        """A table's metadata as its newest metadata file has it; one commit's worth of time."""
        with self._translated(what):
            api = self._ready()
            return api.metadata(ident)

    def described(self, ident: LakeIdent, what: str) -> Mapping[str, Any] | None:
        """The same, None where there is no such table."""
        try:
            return self.metadata(ident, what)
        except LakeFailure as error:
            if _MISSING.match(error.message.lstrip()):
                return None
            raise

    def has_namespace(self, name: str, what: str) -> bool:
        """Whether there is such a schema for tables."""
        with self._translated(what):
            return self._ready().has_namespace(name)

    def warehouse(self, what: str) -> str | None:
        """Where the catalog puts tables, if its configuration says so."""
        with self._translated(what):
            return self._ready().warehouse

    def create_table(
        self,
        ident: LakeIdent,
        *,
        schema: str,
        location: str | None,
        properties: Mapping[str, str],
        summary: Mapping[str, str],
        what: str,
    ) -> Mapping[str, Any]:
        """Make a table with an empty snapshot that says ``summary``: one commit; its metadata.

        It makes a table or does nothing: the call of a worker that is dead by then may come at any
        time, and finds the table there that its successor has made. LakeFailure for one that is.
        """
        with self._translated(what):
            api = self._ready()
            made = api.build_table(ident, schema, location, properties).createTransaction()
            append = made.newAppend().scanManifestsWith(api.in_this_thread)
            for key, value in summary.items():
                append.set(key, value)
            append.commit()
            made.commitTransaction()
            return api.metadata(ident)

    def create_branch(self, ident: LakeIdent, branch: str, at: int | None, what: str) -> None:
        """A branch at a snapshot or at main's tip, in place of one of that name. Never ``main``."""
        repeated(lambda: self._create_branch(ident, branch, at, what))

    def fast_forward(self, ident: LakeIdent, branch: str, what: str) -> int:
        """Move ``main`` on to a branch, if it is an ancestor of it; the snapshot it is at then.

        Ancestry is looked at in the very metadata that the commit replaces, so that a fence in
        between makes it fail. 40001 where the branch is not the one that ``create_branch`` made.
        """
        return repeated(lambda: self._fast_forward(ident, branch, what))

    def _fast_forward(self, ident: LakeIdent, branch: str, what: str) -> int:
        with self._translated(what):
            table = self._ready().load(ident)
            ref = table.refs().get(branch)
            if ref is not None and ref.maxRefAgeMs() is None:  # see table_state.check_ours
                raise changed_meanwhile(ident)
            update = table.manageSnapshots().fastForwardBranch(MAIN, branch)
            update.commit()
            return int(table.snapshot(MAIN).snapshotId())

    def _create_branch(self, ident: LakeIdent, branch: str, at: int | None, what: str) -> None:
        with self._translated(what):
            table = self._ready().load(ident)
            if at is None:
                current = table.currentSnapshot()
                at = None if current is None else current.snapshotId()
            update = table.manageSnapshots()
            if at is None:
                update.createBranch(branch)
            elif table.snapshot(branch) is None:
                update.createBranch(branch, at)
            else:
                update.replaceBranch(branch, at)
            # Whatever history.expire.max-ref-age-ms says of others': a copy takes what it takes.
            update.setMaxRefAgeMs(branch, _FOR_EVER).commit()

    def tip(self, ident: LakeIdent, branch: str, what: str) -> int:
        """The snapshot a branch is at; 40001 where there is no such branch."""
        with self._translated(what):
            snapshot = self._ready().load(ident).snapshot(branch)
            if snapshot is None:
                raise changed_meanwhile(ident)
            return int(snapshot.snapshotId())

    def live(self, ident: LakeIdent, branch: str, what: str) -> FileList:
        """What a branch's rows are read from; 40001 where there is no such branch.

        Its files are told where they are Parquet, and their deletes files of positions.
        """
        with self._translated(what):
            api = self._ready()
            table = api.load(ident)
            snapshot = table.snapshot(branch)
            if snapshot is None:
                raise changed_meanwhile(ident)
            tip = int(snapshot.snapshotId())
            count = snapshot.summary().get("total-data-files")
            if count is None or int(count) > LISTED_FILES:
                return FileList(tip, None)
            store = store_for(str(table.location()))
            files = []
            for task in api.scan(table, tip):
                if store is None or not _is_plain(task, store):
                    return FileList(tip, None)
                deletes = tuple(map(_deletes, task.get("delete-files", ())))
                rows = task["data-file"]
                found = LiveFile(rows["file-path"], rows["record-count"], deletes)
                files.append(replace(found, first_row_id=rows.get("first-row-id")))
            return FileList(tip, tuple(files))

    def commit(
        self,
        ident: LakeIdent,
        branch: str,
        *,
        shape: LayoutId,
        rows: Sequence[NewFile] = (),
        deletes: Sequence[NewFile] = (),
        replaced: Sequence[NewFile] = (),
        gone: Sequence[NewFile] = (),
        properties: Mapping[str, str],
        tip: int | None = None,
        what: str,
    ) -> Totals:
        """One snapshot on a branch: files of rows, files of deletes, and what it says.

        ``replaced`` are files of deletes that go, ``gone`` files of rows whose living ones are in
        ``rows``: of these no deletes may have come. ``shape`` is that of the table the files were
        written for, ``tip`` the snapshot that deletes were looked up in: 40001 where the table has
        another, and where the branch is gone. Never for ``main``.
        """
        with self._translated(what):
            api = self._ready()
            table = api.load(ident)
            snapshot = table.snapshot(branch)
            if snapshot is None or _shape(table) != shape:
                raise changed_meanwhile(ident)
            if tip is not None and snapshot.snapshotId() != tip:
                raise changed_meanwhile(ident)
            if gone:
                update = table.newRewrite().validateFromSnapshot(snapshot.snapshotId())
                for each in gone:
                    update.deleteFile(api.listed_file(table, each))
                for each in replaced:
                    update.deleteFile(api.delete_file(table, each))
                for each in rows:
                    update.addFile(api.data_file(table, each))
            elif deletes or replaced:
                # A vector that came before is one that is replaced here, none of another's.
                update = table.newRowDelta().validateFromSnapshot(snapshot.snapshotId())
                for each in rows:
                    update.addRows(api.data_file(table, each))
                for each in deletes:
                    update.addDeletes(api.delete_file(table, each))
                for each in replaced:
                    update.removeDeletes(api.delete_file(table, each))
            else:
                update = table.newAppend()
                for each in rows:
                    update.appendFile(api.data_file(table, each))
            update.scanManifestsWith(api.in_this_thread).toBranch(branch)
            for key, value in properties.items():
                update.set(key, value)
            update.commit()
            made = table.snapshot(branch)
            summary, tip, before = made.summary(), int(made.snapshotId()), made.parentId()
            names = ("records", "position-deletes", "delete-files", "data-files")
            total = {name: int(summary.get(f"total-{name}") or 0) for name in names}
            idle = total["delete-files"] - total["data-files"]
            return Totals(total["records"], total["position-deletes"], tip, before, idle)

    def expire(self, ident: LakeIdent, older_than: float, keep: int, what: str) -> None:
        """Drop snapshots from before a Unix time, but for the last of ``main`` and of each branch,
        and the files that none of the others needs. Who waits may die meanwhile: it is finished.

        Where only ancestors of ``main`` are left and none was named, Iceberg removes unseen what
        those that went said was replaced, and takes one vector for the whole file, which has those
        of other data files. Where one was named it looks for what is still needed.
        """
        with self._translated(what):
            api = self._ready()
            update = api.load(ident).expireSnapshots().expireOlderThan(int(older_than * 1000))
            update.retainLast(keep).expireSnapshotId(_NO_SNAPSHOT)
            update.executeDeleteWith(api.in_this_thread).planWith(api.in_this_thread).commit()

    def close(self) -> None:
        """Close the connections."""
        self._gateway.close()

    def _ready(self) -> _Api:
        with self._lock:
            if self._api is None:
                self._api = _Api(self._gateway)
            return self._api

    @contextlib.contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            self._gateway.client.forget_dropped()
            try:
                yield
            except Py4JJavaError as error:
                said = _Said(error)  # which asks the gateway
                raise as_replication_error(said, what) from None
        except (Py4JError, OSError):
            raise FamilyProcessGone(
                f"lost the lake server while {what}", detail="Its gateway did not answer."
            ) from None


def _is_plain(task: Mapping[str, Any], store: TableStore) -> bool:
    """Whether a data file and its deletes are such as ours."""
    deletes = task.get("delete-files", ())
    kinds = {each["content"].upper().replace("-", "_") for each in deletes}
    formats = {each["file-format"].upper() for each in deletes}
    rows = task["data-file"]["file-format"].upper() == "PARQUET"
    here = (store.holds(each["file-path"]) for each in (task["data-file"], *deletes))
    return all(here) and rows and kinds <= {"POSITION_DELETES"} and formats <= {"PARQUET", "PUFFIN"}


def _deletes(file: Mapping[str, Any]) -> NewFile:
    vector = None
    if file["file-format"].upper() == "PUFFIN":
        vector = file["content-offset"], file["content-size-in-bytes"]
    of = file.get("referenced-data-file")
    return NewFile(
        file["file-path"], file["file-size-in-bytes"], file["record-count"], of, vector=vector
    )


class _Said(Exception):  # noqa: N818 - what was said, not an error of ours
    """A Java exception with its causes, in the words Spark has for one."""

    def __init__(self, error: Py4JJavaError) -> None:
        thrown: Any = error.java_exception
        super().__init__(str(thrown.toString()))
        lines = []
        for _ in range(_CAUSES):
            if thrown is None:
                break
            lines.append(f"Caused by: {thrown.toString()}")
            thrown = thrown.getCause()
        self._stacktrace = "\n".join(lines)


def _shape(table: Any) -> LayoutId:
    version = table.operations().current().formatVersion()
    return LayoutId(
        str(table.uuid().toString()), table.schema().schemaId(), table.spec().specId(), version
    )
