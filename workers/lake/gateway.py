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
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from catalog.errcodes import FamilyProcessGone, ReplicationError
from workers.lake.conf import CATALOG
from workers.lake.counts import LakeIdent
from workers.lake.failures import LakeFailure, as_replication_error, repeated
from workers.lake.gateway_server import GATEWAY, connect
from workers.lake.iceberg_pools import read_deletes_at_once, remove_at_once
from workers.lake.staged import Live, LiveFile, NewFile, Shape
from workers.lake.statements import MAIN
from workers.lake.table_files import local_folder

MOST_FILES: Final = 2_000
"""Data files of a table that are listed, each by a call; more are read faster by Spark."""
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
            if _MISSING.match(error.said.lstrip()):
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

    def live(self, ident: LakeIdent, branch: str, what: str) -> Live:
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
            if count is None or int(count) > MOST_FILES:
                return Live(tip, None)
            files = []
            for task in api.scan(table, tip):
                if not _is_plain(task):
                    return Live(tip, None)
                deletes = tuple(map(_deletes, task.get("delete-files", ())))
                rows = task["data-file"]
                found = LiveFile(rows["file-path"], rows["record-count"], deletes)
                files.append(replace(found, first_row_id=rows.get("first-row-id")))
            return Live(tip, tuple(files))

    def commit(
        self,
        ident: LakeIdent,
        branch: str,
        *,
        shape: Shape,
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


class _Api:
    """The classes of Iceberg's that are used; each name is looked up by a call of its own."""

    def __init__(self, gateway: Any) -> None:
        sql = gateway.jvm.org.apache.spark.sql.classic.SparkSession
        spark = sql.builder().getOrCreate()
        # A catalog is made of the configuration of the thread's session.
        sql.setActiveSession(spark)
        catalogs = spark.sessionState().catalogManager()
        self._catalog = catalogs.catalog(CATALOG).icebergCatalog()
        iceberg = gateway.jvm.org.apache.iceberg
        self._gateway = gateway
        self._identifier = iceberg.catalog.TableIdentifier
        self._data_files = iceberg.DataFiles
        self._file_metadata = iceberg.FileMetadata
        self._parquet = iceberg.parquet.ParquetUtil
        self._metrics = iceberg.MetricsConfig
        self._new_metrics = iceberg.Metrics
        self._map = gateway.jvm.java.util.HashMap
        self._scan_tasks = iceberg.ScanTaskParser
        self._namespace = iceberg.catalog.Namespace
        self._schemas = iceberg.SchemaParser
        self._path = gateway.jvm.org.apache.hadoop.fs.Path
        self._user = gateway.jvm.java.lang.System.getProperty("user.name")
        self._hadoop = spark.sessionState().newHadoopConf()
        self.warehouse = spark.conf().get(f"spark.sql.catalog.{CATALOG}.warehouse", "") or None
        self._metadata_parser = iceberg.TableMetadataParser
        # For a pool, Iceberg looks every 10 ms whether it is through, eight times in a commit.
        executors = iceberg.relocated.com.google.common.util.concurrent.MoreExecutors
        self.in_this_thread = executors.newDirectExecutorService()
        if self.warehouse is not None and local_folder(self.warehouse) is not None:
            remove_at_once(gateway, self.in_this_thread)
            read_deletes_at_once(gateway, self.in_this_thread)

    def load(self, ident: LakeIdent) -> Any:
        """The table, read anew."""
        name = _string_array(self._gateway, (ident.schema, ident.table))
        return self._catalog.loadTable(self._identifier.of(name))

    def metadata(self, ident: LakeIdent) -> dict[str, Any]:
        """What the table's newest metadata file says."""
        current = self.load(ident).operations().current()
        found: dict[str, Any] = json.loads(self._metadata_parser.toJson(current))
        return found

    def has_namespace(self, name: str) -> bool:
        """Whether the catalog has a schema for tables."""
        namespace = self._namespace.of(_string_array(self._gateway, [name]))
        return bool(self._catalog.namespaceExists(namespace))

    def build_table(
        self, ident: LakeIdent, schema: str, location: str | None, properties: Mapping[str, str]
    ) -> Any:
        """What makes a table; its folder with the file system that Spark would find it in."""
        name = _string_array(self._gateway, (ident.schema, ident.table))
        columns = self._schemas.fromJson(schema)
        builder = self._catalog.buildTable(self._identifier.of(name), columns)
        # As Spark has it: the system's user.
        for key, value in {**properties, "owner": self._user}.items():
            builder.withProperty(key, value)
        if location is not None:
            path = self._path(location)
            builder.withLocation(path.getFileSystem(self._hadoop).makeQualified(path).toString())
        return builder

    def scan(self, table: Any, snapshot_id: int) -> Iterator[Mapping[str, Any]]:
        """A snapshot's data files, each with the files of deletes that concern it."""
        tasks = table.newScan().useSnapshot(snapshot_id).planFiles()
        try:
            found = tasks.iterator()
            while found.hasNext():
                yield json.loads(self._scan_tasks.toJson(found.next()))
        finally:
            tasks.close()

    def data_file(self, table: Any, file: NewFile) -> Any:
        """A file of rows, with the bounds and counts that its footer has of each column."""
        source = table.io().newInputFile(file.path)
        metrics = self._parquet.fileMetrics(source, self._metrics.forTable(table))
        if file.unbounded:
            metrics = self._without_bounds(metrics, file.unbounded)
        builder = self._data_files.builder(table.spec()).withPath(file.path)
        builder.withFormat("PARQUET").withFileSizeInBytes(file.size)
        return builder.withMetrics(metrics).build()

    def listed_file(self, table: Any, file: NewFile) -> Any:
        """A file of rows that the table has, to be found by its name there."""
        builder = self._data_files.builder(table.spec()).withPath(file.path).withFormat("PARQUET")
        return builder.withFileSizeInBytes(file.size).withRecordCount(file.rows).build()

    def _without_bounds(self, metrics: Any, field_ids: Sequence[int]) -> Any:
        bounds = [self._map(metrics.lowerBounds()), self._map(metrics.upperBounds())]
        for each in bounds:
            for field_id in field_ids:
                each.remove(field_id)
        return self._new_metrics(
            metrics.recordCount(),
            metrics.columnSizes(),
            metrics.valueCounts(),
            metrics.nullValueCounts(),
            metrics.nanValueCounts(),
            *bounds,
        )

    def delete_file(self, table: Any, file: NewFile) -> Any:
        """A file of positions, of one data file if it says so.

        Nothing is read of it: where Iceberg's file system is not ours, it is found here.
        """
        table.io().newInputFile(file.path).getLength()
        builder = self._file_metadata.deleteFileBuilder(table.spec()).ofPositionDeletes()
        builder.withPath(file.path).withFileSizeInBytes(file.size).withRecordCount(file.rows)
        if file.vector:
            start, size = file.vector
            builder.withFormat("PUFFIN").withContentOffset(start).withContentSizeInBytes(size)
        else:
            builder.withFormat("PARQUET")
        return (builder.withReferencedDataFile(file.of) if file.of else builder).build()


def _is_plain(task: Mapping[str, Any]) -> bool:
    """Whether a data file and its deletes are such as ours."""
    deletes = task.get("delete-files", ())
    kinds = {each["content"].upper().replace("-", "_") for each in deletes}
    formats = {each["file-format"].upper() for each in deletes}
    rows = task["data-file"]["file-format"].upper() == "PARQUET"
    here = (local_folder(each["file-path"]) for each in (task["data-file"], *deletes))
    return all(here) and rows and kinds <= {"POSITION_DELETES"} and formats <= {"PARQUET", "PUFFIN"}


def _deletes(file: Mapping[str, Any]) -> NewFile:
    vector = None
    if file["file-format"].upper() == "PUFFIN":
        vector = file["content-offset"], file["content-size-in-bytes"]
    of = file.get("referenced-data-file")
    return NewFile(
        file["file-path"], file["file-size-in-bytes"], file["record-count"], of, vector=vector
    )


def _string_array(gateway: Any, values: Sequence[str]) -> Any:
    array = gateway.new_array(gateway.jvm.java.lang.String, len(values))
    for at, value in enumerate(values):
        array[at] = value
    return array


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


def _shape(table: Any) -> Shape:
    version = table.operations().current().formatVersion()
    return Shape(
        str(table.uuid().toString()), table.schema().schemaId(), table.spec().specId(), version
    )


def changed_meanwhile(ident: LakeIdent) -> ReplicationError:
    """40001: what was written is nothing for the table as it is."""
    return ReplicationError(
        f'could not write to lake table "{ident}": it was changed meanwhile',
        detail="The branch is not as it was, or the table's columns or partitions are not.",
        hint="Nothing is to be done: the batch is written again.",
        sqlstate="40001",
    )


def main_was_moved(ident: LakeIdent, detail: str) -> ReplicationError:
    """40001: nothing of the batch is visible."""
    return ReplicationError(
        f'could not publish to lake table "{ident}": main was moved',
        detail=detail,
        sqlstate="40001",
    )
