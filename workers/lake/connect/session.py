"""A Spark Connect session: used by one thread, remembered before use, released for good.

When a client dies during a call, the server finishes the call and commits. ``ReleaseSession`` with
the session's two ids stops the call and closes the session for ever. So a worker stores the ids
with ``remember`` before the first call, and a successor releases the session.

For the same reason no call is ever sent twice. The client's retries are switched off, and so is
re-attachable execution, which sends a plan again when the server does not know the plan. After a
call without an answer the thread releases the session and goes on in a new session.

Trace: worker 1 remembers session A and calls MERGE. Worker 1 dies; the server still runs the MERGE.
Worker 2 starts, reads the ids of A and releases A: the MERGE is cancelled, or has committed before.
From then on no call of worker 1 can commit.
"""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from typing import Any, Final

import grpc
import grpc._channel  # else imported with the first channel, anew in each forked worker
import pyarrow as pa
from pyspark.logger import PySparkLogger
from pyspark.sql.connect.client.core import DefaultChannelBuilder
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.functions import lit
from pyspark.sql.connect.plan import SQL, LocalRelation, LogicalPlan, SubqueryAlias
from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc
from pyspark.sql.connect.session import SparkSession

from catalog.errcodes import ConnectionFailure
from config.limits import (
    CHANNEL_PING_ANSWER_SECONDS,
    CHANNEL_PING_SECONDS,
    SESSION_IDLE_SECONDS,
    SESSION_RELEASE_SECONDS,
)
from workers.lake.connect import shared_session
from workers.lake.connect.errors import SessionClosed, repeated, translated
from workers.lake.connect.lake_url import COMMIT_SERVICE, GATEWAY
from workers.lake.connect.session_conf import FIXED

# PySpark's loggers print a failed query with its Java stack on standard error. We report errors.
for _name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    PySparkLogger.getLogger(_name).disabled = True

PING_KEY: Final = "spark.app.name"
"""The setting that ``check_open`` reads: every server has a value."""

_BACKGROUND: Final[Mapping[str, str]] = {
    # A long stage is one task then and leaves the remaining cores free. Spark shares cores between
    # jobs, but never stops a running task.
    "spark.sql.shuffle.partitions": "1",
}


class LakeSession:
    """One Spark Connect session, used by one thread at a time."""

    def __init__(
        self, url: str, user_id: str, session_id: str, conf: Mapping[str, str] | None = None
    ) -> None:
        builder = channel_builder(url)
        builder.set("session_id", session_id)
        builder.set("user_id", user_id)
        self.ids = (user_id, session_id)
        self.broken = False
        self.closed_from_outside = False
        self.used = monotonic()
        self._spark: Any = SparkSession(builder)
        client = self._spark.client
        client.set_retry_policies([])
        client.disable_reattachable_execute()
        # The clean-up would call the server at exit, and the server may have ended.
        atexit.unregister(client._cleanup_ml_cache)
        self._properties: dict[str, str] = {}
        self._conf = {**(conf or {}), **FIXED}
        self._configured = False
        self._calls = 0

    @property
    def spark(self) -> Any:
        """The session for building DataFrames. Run them with the methods below."""
        return self._spark

    @property
    def usable(self) -> bool:
        """True if nothing broke in the session, and the server still knows the session."""
        idle = 0.0 if self._calls else monotonic() - self.used
        return not self.broken and idle < SESSION_IDLE_SECONDS

    def frame(self, plan: LogicalPlan) -> Any:
        """A DataFrame of a plan."""
        return DataFrame(plan, self._spark)

    def local(self, table: pa.Table) -> Any:
        """A DataFrame of an Arrow table that travels inside the plan; column types are kept."""
        return self.frame(LocalRelation(table))

    def query(self, sql: str, what: str, **views: Any) -> pa.Table:
        """Run a query and fetch the rows: one call. ``views`` are DataFrames that the SQL names."""
        with self._call(what):
            plan = SQL(sql, None, None, _aliased(views)).to_proto(self._spark.client)
            table: pa.Table = self._spark.client.to_table(plan, {})[0]
            return table

    def collect(self, frame: Any, what: str) -> pa.Table:
        """Run a DataFrame and fetch the rows: one call."""
        with self._call(what):
            plan = frame._plan.to_proto(self._spark.client)
            table: pa.Table = self._spark.client.to_table(plan, {})[0]
            return table

    def command(self, sql: str, what: str, **views: Any) -> None:
        """Run a statement: one call."""
        self._execute(sql, what, views)

    def commit(self, sql: str, what: str) -> pa.Table | None:
        """``call`` a statement, and repeat the call if another commit came first.

        Iceberg repeats a commit of rows, but never a commit that changes branches.
        """
        return repeated(lambda: self.call(sql, what))

    def call(self, sql: str, what: str) -> pa.Table | None:
        """Run a statement that returns rows without a Spark job (CALL, SHOW): one call.

        None if the statement returned no rows, or rows that cannot be read.
        """
        return _rows_of(self._execute(sql, what, {}))

    def _execute(self, sql: str, what: str, views: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._call(what):
            command = SQL(sql, None, None, _aliased(views))
            result = self._spark.client.execute_command(command.command(self._spark.client))
            properties: Mapping[str, Any] = result[1]
            return properties

    def append(self, frame: Any, table: str, options: Mapping[str, str], what: str) -> None:
        """Append a DataFrame by column names to a table (or ``table.branch_x``).

        ``options`` carry the snapshot's properties. Properties that ``set_properties`` left in the
        session are removed first: they would give this table the position of a different table.
        """
        self.set_properties({})
        with self._call(what):
            frame.writeTo(table).options(**options).append()

    def overwrite(self, frame: Any, table: str, options: Mapping[str, str], what: str) -> None:
        """Replace all rows of a table by a DataFrame."""
        self.set_properties({})
        with self._call(what):
            frame.writeTo(table).options(**options).overwrite(lit(True))

    def replace(
        self,
        frame: Any,
        table: str,
        properties: Mapping[str, str],
        options: Mapping[str, str],
        what: str,
    ) -> None:
        """Create or replace a table with the columns and rows of a DataFrame.

        The former table's snapshots are no ancestors of the new snapshot. An expiry removes them
        first, at any age.
        """
        self.set_properties({})
        with self._call(what):
            writer = frame.writeTo(table).using("iceberg").options(**options)
            for key, value in properties.items():
                writer = writer.tableProperty(key, value)
            writer.createOrReplace()

    @contextlib.contextmanager
    def watched(self, completed: Callable[[int], None]) -> Iterator[None]:
        """Report how many tasks of the call in the block are done, as the server reports it."""

        def handler(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
            if stages:
                completed(sum(stage.num_completed_tasks for stage in stages))

        self._spark.client.register_progress_handler(handler)
        try:
            yield
        finally:
            self._spark.client.remove_progress_handler(handler)

    def schema(self, sql: str, what: str) -> Any:
        """The Spark schema of a query, without running it."""
        with self._call(what):
            return self.frame(SQL(sql)).schema

    def conf(self, key: str) -> str | None:
        """A configuration value of the server; None when it has none."""
        with self._call("reading its configuration"):
            value: str | None = self._spark.conf.get(key, "") or None
            return value

    def check_open(self) -> None:
        """Raise ``SessionClosed`` if the session was closed for good from outside."""
        self.conf(PING_KEY)

    def touch(self) -> None:
        """Send a small request beside a running call, so that the server keeps the session.

        Any thread may call. The answer does not matter: a call finds out what is wrong.
        """
        if not (self._configured and self.usable):
            return
        client = self._spark.client
        request = base_pb2.ConfigRequest(session_id=self.ids[1])
        request.user_context.user_id = self.ids[0]
        request.operation.get.keys.append(PING_KEY)
        with contextlib.suppress(grpc.RpcError, ValueError):  # a closed channel is a ValueError
            base_pb2_grpc.SparkConnectServiceStub(client._channel).Config(
                request, timeout=SESSION_RELEASE_SECONDS, metadata=client._builder.metadata()
            )

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set all snapshot properties of this session's SQL commits; earlier ones are removed."""
        if dict(properties) == self._properties:
            return
        stale = [_property(key) for key in self._properties if key not in properties]
        fresh = {_property(k): v for k, v in properties.items() if self._properties.get(k) != v}
        with self._call("setting snapshot properties"):
            # If a call fails, the session may have the old properties, the new ones, or a mixture.
            self._properties = {**self._properties, **properties, "": ""}
            if stale:
                self._config(unset=base_pb2.ConfigRequest.Unset(keys=stale))
            if fresh:
                self._set(fresh)
            self._properties = dict(properties)

    def _set(self, pairs: Mapping[str, str]) -> None:
        pairs_pb = [base_pb2.KeyValue(key=key, value=value) for key, value in pairs.items()]
        # Never ``silent``, as PySpark sets them: a setting the server refuses must be an error.
        self._config(set=base_pb2.ConfigRequest.Set(pairs=pairs_pb))

    def _config(self, **operation: Any) -> None:
        self._spark.client.config(base_pb2.ConfigRequest.Operation(**operation))

    def limit_parallelism(self) -> None:
        """Leave processor cores to the queries of further sessions, from now on."""
        with self._call("setting its parallelism"):
            self._set(_BACKGROUND)

    def share(self) -> None:
        """Share generated code and Python processes with other sessions; before the first call."""
        client = self._spark.client
        try:
            with translated("opening a Spark session"):
                shared_session.begin(client._channel, client._builder.metadata(), *self.ids)
        except BaseException:
            self.broken = True
            raise

    def configure(self) -> None:
        """Set the settings that every session has: the first call."""
        with self._call("opening a Spark session"):
            return

    @contextlib.contextmanager
    def _call(self, what: str) -> Iterator[None]:
        self.used = monotonic()
        self._calls += 1
        try:
            with translated(what):
                if not self._configured:
                    self._set(self._conf)
                    self._configured = True
                yield
        except ConnectionFailure as error:
            self.broken = True
            self.closed_from_outside = isinstance(error, SessionClosed)
            raise
        except BaseException as error:
            # After a KeyboardInterrupt in the middle of a call, the answer is missing too.
            self.broken = self.broken or not isinstance(error, Exception)
            raise
        finally:
            self._calls -= 1
            self.used = monotonic()

    def close(self) -> None:
        """Close the channel. ``release_sessions`` releases the session on the server."""
        with contextlib.suppress(Exception):
            self._spark.client._channel.close()


def channel_builder(url: str) -> Any:
    """Build a channel that sends the URL's token as a header of each call.

    PySpark would turn the token into gRPC call credentials. Call credentials run Python on a thread
    of gRPC. Closing a channel waits for the thread while holding the interpreter's lock: about one
    close in twenty never returned.

    A call may run for hours, but a frozen server or a vanished machine is found in minutes: gRPC
    tests a silent connection during a call. Without a call gRPC does not test the connection,
    because Spark's server does not permit the test.

    A server on this machine is never reached through the proxy of ``http_proxy``, which gRPC would
    ask even for ``localhost``.
    """
    options = [
        ("grpc.enable_retries", 0),
        ("grpc.keepalive_time_ms", round(CHANNEL_PING_SECONDS * 1000)),
        ("grpc.keepalive_timeout_ms", round(CHANNEL_PING_ANSWER_SECONDS * 1000)),
        ("grpc.http2.ping_timeout_ms", round(CHANNEL_PING_ANSWER_SECONDS * 1000)),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    builder = DefaultChannelBuilder(url, options)
    if builder.host in ("localhost", "127.0.0.1", "[::1]"):
        builder.setChannelOption("grpc.enable_http_proxy", 0)
    for own in (GATEWAY, COMMIT_SERVICE):
        builder._params.pop(own, None)
    token = builder._params.pop("token", None)
    if token is not None:
        builder._params["authorization"] = f"Bearer {token}"
        if builder.host != "localhost":
            builder._params["use_ssl"] = "true"  # as with PySpark's call credentials
    return builder


def _rows_of(properties: Mapping[str, Any]) -> pa.Table | None:
    """The rows that a statement returned, which the server sends as a local relation.

    The statement has taken effect, so unreadable rows are no error.
    """
    relation = properties.get("sql_command_result")
    if relation is None or not relation.local_relation.data:
        return None
    try:
        with pa.ipc.open_stream(relation.local_relation.data) as reader:
            rows: pa.Table = reader.read_all()
    except pa.ArrowException:
        return None
    return rows if rows.num_rows else None


def _aliased(views: Mapping[str, Any]) -> list[Any]:
    return [SubqueryAlias(frame._plan, name) for name, frame in views.items()]


def _property(key: str) -> str:
    return f"spark.sql.iceberg.snapshot-property.{key}"
