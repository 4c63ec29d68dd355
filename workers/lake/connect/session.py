"""Spark Connect sessions: one per thread, remembered before use, released for good.

A call whose client died goes on inside the server and commits. What stops it, and closes its
session for ever, is ``ReleaseSession`` with the session's two ids; so the ids are handed to
``remember`` before the first call, and a successor releases them. For the same reason no call is
ever sent twice: the client's own retries and its re-attachable execution (which sends a plan again
when the server does not know it) are switched off, and a session in which a call went unanswered
is released before its thread goes on in a new one.
"""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from typing import Any, Final

import pyarrow as pa
from pyspark.logger import PySparkLogger
from pyspark.sql.connect.client.core import DefaultChannelBuilder
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.functions import lit
from pyspark.sql.connect.plan import SQL, LocalRelation, LogicalPlan, SubqueryAlias
from pyspark.sql.connect.proto import base_pb2
from pyspark.sql.connect.session import SparkSession

from catalog.errcodes import ConnectionFailure
from config.limits import SESSION_IDLE_SECONDS
from workers.lake.connect import shared_session
from workers.lake.connect.errors import SessionClosed, repeated, translated
from workers.lake.connect.lake_url import GATEWAY
from workers.lake.connect.session_conf import FIXED

# They print a failed query with its Java stack on standard error; errors are ours to report.
for _name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    PySparkLogger.getLogger(_name).disabled = True

PING_KEY: Final = "spark.app.name"  # which is asked to be answered

_BACKGROUND: Final[Mapping[str, str]] = {
    # A stage that takes long is one task then, and leaves the other cores alone: tasks of other
    # jobs take turns with it, but none ends before its time.
    "spark.sql.shuffle.partitions": "1",
}


class LakeSession:
    """One Spark Connect session, used by one thread at a time."""

    def __init__(
        self, url: str, user_id: str, session_id: str, conf: Mapping[str, str] | None = None
    ) -> None:
        builder = _builder(url)
        builder.set("session_id", session_id)
        builder.set("user_id", user_id)
        self.ids = (user_id, session_id)
        self.broken = False
        self.closed_by_successor = False
        self.used = monotonic()
        self._spark: Any = SparkSession(builder)
        client = self._spark.client
        client.set_retry_policies([])
        client.disable_reattachable_execute()
        # It would call a server that may be gone by then.
        atexit.unregister(client._cleanup_ml_cache)
        self._properties: dict[str, str] = {}
        self._conf = {**(conf or {}), **FIXED}
        self._configured = False

    @property
    def spark(self) -> Any:
        """The session for building DataFrames; what runs them is below."""
        return self._spark

    @property
    def usable(self) -> bool:
        """True if nothing broke in the session, and the server still knows the session."""
        return not self.broken and monotonic() - self.used < SESSION_IDLE_SECONDS

    def frame(self, plan: LogicalPlan) -> Any:
        """A DataFrame of a plan."""
        return DataFrame(plan, self._spark)

    def local(self, table: pa.Table) -> Any:
        """A DataFrame of an Arrow table that travels inside the plan; column types as they are."""
        return self.frame(LocalRelation(table))

    def query(self, sql: str, what: str, **views: Any) -> pa.Table:
        """Run a query and fetch its rows: one call. ``views`` are DataFrames it names."""
        with self._call(what):
            plan = SQL(sql, None, None, _aliased(views)).to_proto(self._spark.client)
            table: pa.Table = self._spark.client.to_table(plan, {})[0]
            return table

    def collect(self, frame: Any, what: str) -> pa.Table:
        """Run a DataFrame and fetch its rows: one call."""
        with self._call(what):
            plan = frame._plan.to_proto(self._spark.client)
            table: pa.Table = self._spark.client.to_table(plan, {})[0]
            return table

    def command(self, sql: str, what: str, **views: Any) -> None:
        """Run a statement: one call."""
        self._execute(sql, what, views)

    def commit(self, sql: str, what: str) -> pa.Table | None:
        """``call`` a statement that may be repeated; again where another commit came first.

        Iceberg repeats a commit of rows by itself, one of branches it does not.
        """
        return repeated(lambda: self.call(sql, what))

    def call(self, sql: str, what: str) -> pa.Table | None:
        """Run a statement that answers by itself (CALL, SHOW): one call and no job for the answer.

        None where that cannot be read.
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

        ``options`` carry the snapshot's properties. What an earlier SQL commit of this session
        was given must not come along: it would stamp this table with another table's position.
        """
        self.set_properties({})
        with self._call(what):
            frame.writeTo(table).options(**options).append()

    def overwrite(self, frame: Any, table: str, options: Mapping[str, str], what: str) -> None:
        """Put a DataFrame in place of all rows of a table."""
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
        """Make a table of a DataFrame's columns and rows, in place of one of that name.

        What was there is no ancestor of it: expiry takes that first, however little is old.
        """
        self.set_properties({})
        with self._call(what):
            writer = frame.writeTo(table).using("iceberg").options(**options)
            for key, value in properties.items():
                writer = writer.tableProperty(key, value)
            writer.createOrReplace()

    @contextlib.contextmanager
    def watched(self, completed: Callable[[int], None]) -> Iterator[None]:
        """Tell how many tasks of the call inside are done, whenever the server says."""

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
        """Raises ``SessionClosed`` if a successor has closed it for good."""
        self.conf(PING_KEY)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Make these, and no others, the snapshot properties of this session's SQL commits."""
        if dict(properties) == self._properties:
            return
        stale = [_property(key) for key in self._properties if key not in properties]
        fresh = {_property(k): v for k, v in properties.items() if self._properties.get(k) != v}
        with self._call("setting snapshot properties"):
            # While the calls are under way neither the old nor the new set is sure to hold.
            self._properties = {**self._properties, **properties, "": ""}
            if stale:
                self._config(unset=base_pb2.ConfigRequest.Unset(keys=stale))
            if fresh:
                self._set(fresh)
            self._properties = dict(properties)

    def _set(self, pairs: Mapping[str, str]) -> None:
        pairs_pb = [base_pb2.KeyValue(key=key, value=value) for key, value in pairs.items()]
        # Never ``silent``, as pyspark's own are: what the server does not take would be left out.
        self._config(set=base_pb2.ConfigRequest.Set(pairs=pairs_pb))

    def _config(self, **operation: Any) -> None:
        self._spark.client.config(base_pb2.ConfigRequest.Operation(**operation))

    def limit_parallelism(self) -> None:
        """What runs in this session from now on gives way to what runs in others."""
        with self._call("setting its parallelism"):
            self._set(_BACKGROUND)

    def share(self) -> None:
        """Share generated code and Python processes with others; before anything else."""
        client = self._spark.client
        try:
            with translated("opening a Spark session"):
                shared_session.begin(client._channel, client._builder.metadata(), *self.ids)
        except BaseException:
            self.broken = True
            raise

    def configure(self) -> None:
        """Set what every session has set: its first call."""
        with self._call("opening a Spark session"):
            return

    @contextlib.contextmanager
    def _call(self, what: str) -> Iterator[None]:
        self.used = monotonic()
        try:
            with translated(what):
                if not self._configured:
                    self._set(self._conf)
                    self._configured = True
                yield
        except ConnectionFailure as error:
            self.broken = True
            self.closed_by_successor = isinstance(error, SessionClosed)
            raise
        except BaseException as error:
            # A KeyboardInterrupt in the middle of a call leaves it unanswered, too.
            self.broken = self.broken or not isinstance(error, Exception)
            raise
        finally:
            self.used = monotonic()

    def close(self) -> None:
        """Close the channel; the server's side is released by ``release_sessions``."""
        with contextlib.suppress(Exception):
            self._spark.client._channel.close()


def _builder(url: str) -> Any:
    """A channel builder that sends the URL's token as a header of each call.

    pyspark would make gRPC call credentials of it. Those run Python on a thread of gRPC's own;
    closing a channel waits for that thread and holds the interpreter's lock meanwhile: about one
    close in twenty never came back.
    """
    builder = DefaultChannelBuilder(url, [("grpc.enable_retries", 0)])
    builder._params.pop(GATEWAY, None)
    token = builder._params.pop("token", None)
    if token is not None:
        builder._params["authorization"] = f"Bearer {token}"
        if builder.host != "localhost":
            builder._params["use_ssl"] = "true"  # as the token would have implied
    return builder


def _rows_of(properties: Mapping[str, Any]) -> pa.Table | None:
    """What a statement answered: the server sends it along as a relation of finished rows.

    The statement has had its effect, so an answer that cannot be read is no error.
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
