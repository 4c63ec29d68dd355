"""The Java classes and methods of Iceberg that the room calls."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from workers.lake.api.iceberg_internals import KnownState, private_value, snapshot_method
from workers.lake.api.iceberg_threads import read_deletes_at_once, remove_at_once
from workers.lake.connect.session_conf import CATALOG
from workers.lake.metadata.table_location import given_warehouse, is_whole
from workers.lake.staged_rows import NewFile
from workers.lake.storage.choose_store import store_for
from workers.lake.table import MAIN, LakeIdent
from workers.lake.table_totals import TOTALS

_ICEBERG: Final = "org.apache.iceberg"
_REST_CATALOG: Final = f"{_ICEBERG}.rest.RESTCatalog"
_CATALOG_CONF: Final = f"spark.sql.catalog.{CATALOG}"
_DELETES: Final = "DELETES"
"""The content of a manifest of delete files. ``readPaths`` refuses such a manifest."""
BRANCH_AGE_MS: Final = 2**63 - 1
"""For ever. Without an age a branch could expire by ``history.expire.max-ref-age-ms`` during a long
copy. The age also marks a branch that was created here: see ``tip_to_publish``."""
_MISSING: Final = re.compile(
    r"org\.apache\.iceberg\.exceptions\.NoSuch\w*(Table|Namespace)Exception\b"
)


def is_missing(text: str) -> bool:
    """Does the text of a Java exception say that there is no such table, or no such schema?"""
    return _MISSING.match(text.lstrip()) is not None


class JavaApi:
    """Iceberg's classes, looked up once: every look-up of a name is a call."""

    def __init__(self, gateway: Any) -> None:
        sql = gateway.jvm.org.apache.spark.sql.classic.SparkSession
        spark = sql.builder().getOrCreate()
        # Spark creates a catalog with the configuration of the thread's session.
        sql.setActiveSession(spark)
        self._catalogs = spark.sessionState().catalogManager()
        self.catalog = self._catalogs.catalog(CATALOG).icebergCatalog()
        # Only a REST catalog answers a commit with the table's new state; others are read again.
        self.answers_with_state = str(self.catalog.getClass().getSimpleName()) == "RESTCatalog"
        iceberg = gateway.jvm.org.apache.iceberg
        self._gateway = gateway
        self.jvm = gateway.jvm
        self._identifier = iceberg.catalog.TableIdentifier
        self._data_files = _with(iceberg.DataFiles, "builder")
        self._content_files = _with(iceberg.ContentFileParser, "fromJson")
        self._json = iceberg.util.JsonUtil
        self._parquet = _with(iceberg.parquet.ParquetUtil, "fileMetrics")
        self._in_memory = iceberg.inmemory.InMemoryInputFile
        self._metrics = iceberg.MetricsConfig
        self._new_metrics = iceberg.Metrics
        self._map = gateway.jvm.java.util.HashMap
        self._list = gateway.jvm.java.util.ArrayList
        self._endpoints = iceberg.rest.Endpoint
        self._table_commit = iceberg.catalog.TableCommit
        self._scan_tasks = _with(iceberg.ScanTaskParser, "toJson")
        self._namespace = iceberg.catalog.Namespace
        self._schemas = iceberg.SchemaParser
        self._specs = iceberg.PartitionSpecParser
        self._orders = iceberg.SortOrderParser
        self._path = gateway.jvm.org.apache.hadoop.fs.Path
        self._user = gateway.jvm.java.lang.System.getProperty("user.name")
        self._hadoop = spark.sessionState().newHadoopConf()
        known = ("type", "catalog-impl", "warehouse")
        conf = {key: str(spark.conf().get(f"{_CATALOG_CONF}.{key}", "")) for key in known}
        self.warehouse = given_warehouse(conf)
        self._metadata_parser = iceberg.TableMetadataParser
        self._table_metadata = iceberg.TableMetadata
        self._manifests = iceberg.ManifestFiles
        self._refs = iceberg.SnapshotRef
        self._base_table = iceberg.BaseTable
        self._reachable_files = iceberg.ReachableFileUtil
        self._removal = iceberg.CatalogUtil
        self._sets = iceberg.relocated.com.google.common.collect.Sets
        self._streams = gateway.jvm.java.util.stream
        self._pattern = gateway.jvm.java.util.regex.Pattern
        of = gateway.jvm.java.lang.Class.forName
        self._cleanable = of(f"{_ICEBERG}.exceptions.CleanableFailure")
        self._objects = gateway.jvm.java.lang.Object
        self._remove_all = snapshot_method(gateway, "cleanAll")
        self._remove_useless = snapshot_method(gateway, "cleanUncommitted", "java.util.Set")
        self.on_known_state = KnownState(gateway).given
        # Iceberg waits for a pool in steps of 10 ms, eight times in a commit.
        executors = iceberg.relocated.com.google.common.util.concurrent.MoreExecutors
        self.in_this_thread = executors.newDirectExecutorService()
        store = store_for(conf["warehouse"])
        if store is not None and store.has_cheap_requests:
            remove_at_once(gateway, self.in_this_thread)
            read_deletes_at_once(gateway, self.in_this_thread)

    def forget_catalog(self) -> None:
        """Close a catalog whose tokens the server knows no more; the next use makes a new one.

        All processes share the catalog. One that still holds the closed catalog fails, as before.
        """
        if self._catalogs.catalog(CATALOG).icebergCatalog().equals(self.catalog):
            self._catalogs.reset()
            self.catalog.close()

    def load(self, ident: LakeIdent) -> Any:
        """The table, read from the catalog."""
        name = _string_array(self._gateway, (ident.schema, ident.table))
        return self.catalog.loadTable(self._identifier.of(name))

    def metadata(self, ident: LakeIdent) -> dict[str, Any]:
        """The table's newest metadata file, of which the process counts the size too."""
        return self.metadata_of(ident, self.load(ident))

    def metadata_of(self, ident: LakeIdent, table: Any) -> dict[str, Any]:
        """``metadata`` of a table that was just loaded."""
        text = str(self._metadata_parser.toJson(table.operations().current()))
        found: dict[str, Any] = json.loads(text)
        TOTALS.note_metadata(ident, len(found.get("snapshots", ())), len(text.encode()))
        return found

    def metadata_if_any(self, ident: LakeIdent) -> dict[str, Any] | None:
        """``metadata`` of a table that may be missing: known by the error, without a question."""
        try:
            return self.metadata(ident)
        except Py4JJavaError as error:
            thrown: Any = error.java_exception
            if is_missing(str(thrown.toString())):
                return None
            raise

    def as_json(self, metadata: Any) -> dict[str, Any]:
        """Iceberg's metadata of a table as data."""
        found: dict[str, Any] = json.loads(self._metadata_parser.toJson(metadata))
        return found

    def move_main(self, operations: Any, base: Any, tip: int) -> None:
        """Set ``main`` to a snapshot of the table, if the metadata is still ``base``."""
        operations.commit(base, self.with_snapshot(base, tip, MAIN))

    def made_table(self, transaction: Any) -> Any:
        """The table that a transaction has just made, in the state of the catalog's answer."""
        return self._base_table(transaction.underlyingOps(), transaction.table().name())

    def set_branch(self, operations: Any, branch: str, at: int) -> None:
        """Set a branch, which need not exist, to a snapshot of the table, for ever."""
        base = operations.current()
        ref = self._refs.branchBuilder(at).maxRefAgeMs(BRANCH_AGE_MS).build()
        operations.commit(base, self._table_metadata.buildFrom(base).setRef(branch, ref).build())

    def lists_endpoint(self, name: str) -> bool:
        """Does a REST catalog say that it has an endpoint? ``name`` is of Iceberg's ``Endpoint``.

        False for other catalogs, and for a REST catalog that says nothing: for the old servers
        Iceberg has a list of its own, which no server has confirmed.
        """
        if str(self.catalog.getClass().getName()) != _REST_CATALOG:
            return False
        rest = private_value(self.catalog, "sessionCatalog")
        told, old = private_value(rest, "endpoints"), private_value(rest, "DEFAULT_ENDPOINTS")
        with_views = self._sets.union(old, private_value(rest, "VIEW_ENDPOINTS"))
        if told.equals(old) or told.equals(with_views):
            return False
        return bool(told.contains(getattr(self._endpoints, name)))

    def change_of_main(self, ident: LakeIdent, base: Any, tip: int) -> Any:
        """The change that ``main`` is at a snapshot, for ``commit_together``.

        The change requires the table and the ``main`` of the metadata ``base``.
        """
        return self.change_of(ident, base, self.with_snapshot(base, tip, MAIN))

    def change_of(self, ident: LakeIdent, base: Any, metadata: Any) -> Any:
        """The change from ``base`` to ``metadata``, which requires each ref that it sets."""
        name = self._identifier.of(_string_array(self._gateway, (ident.schema, ident.table)))
        return self._table_commit.create(name, base, metadata)

    def commit_together(self, changes: Sequence[Any]) -> None:
        """Make the changes of several tables by one call to a REST catalog: all or none."""
        together = self._list()
        for change in changes:
            together.add(change)
        self.catalog.commitTransaction(together)

    def replace_columns(
        self,
        operations: Any,
        base: Any,
        schema: Mapping[str, Any],
        properties: Mapping[str, str],
        publishes: int | None = None,
    ) -> None:
        """Commit another current schema and more properties, if the metadata is still ``base``.

        ``publishes`` is a snapshot that ``main`` is set to in the same commit.
        """
        columns = self._schemas.fromJson(json.dumps(schema))
        last = max(int(base.lastColumnId()), int(columns.highestFieldId()))
        builder = self._table_metadata.buildFrom(base).setCurrentSchema(columns, last)
        if publishes is not None:
            builder = builder.setBranchSnapshot(publishes, MAIN)
        more = self._map()
        for key, value in properties.items():
            more.put(key, value)
        operations.commit(base, builder.setProperties(more).build())

    def with_snapshot(self, base: Any, snapshot: Any, branch: str, *others: str) -> Any:
        """The metadata ``base`` with branches at a new snapshot, or at one of the table by id."""
        builder = self._table_metadata.buildFrom(base).setBranchSnapshot(snapshot, branch)
        for other in others:
            builder = builder.setBranchSnapshot(snapshot.snapshotId(), other)
        return builder.build()

    def is_cleanable(self, thrown: Any) -> bool:
        """Does the Java exception say that nothing was committed?"""
        return bool(self._cleanable.isInstance(thrown))

    def remove_all_manifests(self, update: Any) -> None:
        """Remove the manifests and lists of a snapshot that was not committed."""
        self._remove_all.invoke(update, self._gateway.new_array(self._objects, 0))

    def remove_useless_manifests(
        self, table: Any, update: Any, made: Any, lists: Sequence[str]
    ) -> None:
        """Remove the manifests that the committed snapshot does not name, and former lists."""
        given = self._gateway.new_array(self._objects, 1)
        given[0] = self._sets.newHashSet(made.allManifests(table.io()))
        self._remove_useless.invoke(update, given)
        for each in lists:
            table.io().deleteFile(each)

    def collector(self) -> Any:
        """A Java ``Consumer`` of strings that keeps them, for ``joined``."""
        return self._streams.Stream.builder()

    def joined(self, collector: Any, separator: str) -> Any:
        """All strings of the collector in one: a call for each string would take long."""
        return collector.build().collect(self._streams.Collectors.joining(separator))

    def new_set(self) -> Any:
        """An empty Java set."""
        return self._sets.newHashSet()

    def string_set(self, joined: str, separator: str) -> Any:
        """A Java set of the strings in ``joined``."""
        strings = self._pattern.compile(separator).splitAsStream(joined)
        return strings.collect(self._streams.Collectors.toSet())

    def statistics_files(self, table: Any) -> Any:
        """The paths of the statistics of all snapshots."""
        return self._reachable_files.statisticsFilesLocations(table)

    def live_paths(self, table: Any, manifest: Any) -> Any:
        """The paths of the data or delete files that a manifest names, as a Java set."""
        if str(manifest.content().toString()) != _DELETES:
            paths = self._manifests.readPaths(manifest, table.io(), table.specs())
            try:
                return self._sets.newHashSet(paths)
            finally:
                paths.close()
        found = self.new_set()
        reader = self._manifests.readDeleteManifest(manifest, table.io(), table.specs())
        try:
            files = reader.iterator()
            while files.hasNext():
                found.add(files.next().location())
        finally:
            reader.close()
        return found

    def delete_files(self, table: Any, paths: Any) -> None:
        """Delete files. Iceberg logs a file that stays; orphan removal finds the file."""
        self._removal.deleteFiles(table.io(), paths, "expired", False)

    def has_namespace(self, name: str) -> bool:
        """Has the catalog a schema of the name?"""
        namespace = self._namespace.of(_string_array(self._gateway, [name]))
        return bool(self.catalog.namespaceExists(namespace))

    def create_namespace(self, name: str) -> None:
        """Create a schema; fails if the catalog has the schema."""
        self.catalog.createNamespace(self._namespace.of(_string_array(self._gateway, [name])))

    def has_table(self, ident: LakeIdent) -> bool:
        """Has the catalog a table of the name?"""
        name = _string_array(self._gateway, (ident.schema, ident.table))
        return bool(self.catalog.tableExists(self._identifier.of(name)))

    def every_row(self) -> Any:
        """The filter that every row of a table passes."""
        return self._gateway.jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()

    def build_table(
        self, ident: LakeIdent, schema: str, location: str | None, properties: Mapping[str, str]
    ) -> Any:
        """A builder of a table; Spark's Hadoop settings complete a folder without a host."""
        name = _string_array(self._gateway, (ident.schema, ident.table))
        columns = self._schemas.fromJson(schema)
        builder = self.catalog.buildTable(self._identifier.of(name), columns)
        # Spark, too, makes the system's user the owner.
        for key, value in {**properties, "owner": self._user}.items():
            builder.withProperty(key, value)
        if location is not None and is_whole(location):
            builder.withLocation(location)
        elif location is not None:
            path = self._path(location)
            builder.withLocation(path.getFileSystem(self._hadoop).makeQualified(path).toString())
        return builder

    def lay_out(self, builder: Any, schema: str, spec: str | None, order: str | None) -> None:
        """Give the builder of a table partitions and a sort order."""
        columns = self._schemas.fromJson(schema)
        if spec is not None:
            builder.withPartitionSpec(self._specs.fromJson(columns, spec))
        if order is not None:
            builder.withSortOrder(self._orders.fromJson(columns, order))

    def scan(self, table: Any, snapshot_id: int) -> Iterator[Mapping[str, Any]]:
        """The data files of a snapshot, with the delete files of every data file."""
        tasks = table.newScan().useSnapshot(snapshot_id).planFiles()
        try:
            found = tasks.iterator()
            while found.hasNext():
                yield json.loads(self._scan_tasks.toJson(found.next()))
        finally:
            tasks.close()

    def data_files(
        self, table: Any, files: Sequence[NewFile], stored: Collection[str] = ()
    ) -> list[Any]:
        """New data files, with the bounds and counts of every column from the footers.

        Of a file that brings its footer only the length is asked for, which finds a missing file;
        and not even that if the store has just confirmed the file (``stored`` has the path).
        """
        config, specs, made = self._metrics.forTable(table), dict[int, Any](), list[Any]()
        for file, listed in zip(files, self.listed_files(table, files), strict=True):
            spec_id = listed.specId()
            if spec_id not in specs:
                specs[spec_id] = table.specs().get(spec_id)
            metrics = self._parquet.fileMetrics(self._footer(table, file, stored), config)
            if file.unbounded:
                metrics = self._without_bounds(metrics, file.unbounded)
            builder = self._data_files.builder(specs[spec_id]).copy(listed)
            made.append(builder.withMetrics(metrics).build())
        return made

    def _footer(self, table: Any, file: NewFile, stored: Collection[str]) -> Any:
        """What the footer of a new data file is read from."""
        if not file.footer:
            return table.io().newInputFile(file.path)
        if file.path not in stored:
            table.io().newInputFile(file.path).getLength()
        return self._in_memory(file.path, file.footer)

    def listed_files(self, table: Any, files: Sequence[NewFile]) -> list[Any]:
        """Data files by name, partition and size."""
        return self._from_json(table, files, "data")

    def position_deletes(
        self, table: Any, files: Sequence[NewFile], stored: Collection[str]
    ) -> list[Any]:
        """Delete files, each for a single data file if ``file.of`` names the data file.

        Iceberg does not read the files; asking for the length finds a missing file
        (``data_files``).
        """
        for file in files:
            if file.path not in stored:
                table.io().newInputFile(file.path).getLength()
        return self._from_json(table, files, "position-deletes")

    def _from_json(self, table: Any, files: Sequence[NewFile], content: str) -> list[Any]:
        """Files in the JSON form of Iceberg's REST protocol: two calls for a file.

        A file takes 14 calls with Java's builders.
        """
        if not files:
            return []
        specs, default = table.specs(), None
        ids = {each.place.spec_id for each in files if each.place is not None}
        with_partitions = {n for n in ids if not specs.get(n).isUnpartitioned()}
        described = []
        for file in files:
            each = _described(file, content)
            if file.place is None:
                default = table.spec().specId() if default is None else default
                each["spec-id"] = default
            elif file.place.spec_id in with_partitions:
                each["partition"] = json.loads(file.place.values)
            described.append(each)
        found = self._json.mapper().readTree(json.dumps(described))
        return [self._content_files.fromJson(found.get(n), specs) for n in range(len(files))]

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


def _with(java_class: Any, method: str) -> Any:
    """The class with a static method, which py4j would look up in Java again for every file."""
    setattr(java_class, method, getattr(java_class, method))
    return java_class


def _described(file: NewFile, content: str) -> dict[str, Any]:
    """A file in JSON, without its partition."""
    found: dict[str, Any] = {
        "spec-id": None if file.place is None else file.place.spec_id,
        "content": content,
        "file-path": file.path,
        "file-format": "puffin" if file.vector else "parquet",
        "file-size-in-bytes": file.size,
        "record-count": file.rows,
    }
    if file.of and content != "data":
        found["referenced-data-file"] = file.of
    if file.vector:
        found["content-offset"], found["content-size-in-bytes"] = file.vector
    return found


def _string_array(gateway: Any, values: Sequence[str]) -> Any:
    array = gateway.new_array(gateway.jvm.java.lang.String, len(values))
    for at, value in enumerate(values):
        array[at] = value
    return array
