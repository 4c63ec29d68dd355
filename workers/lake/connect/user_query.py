"""A user's Spark SQL, for ``pgsub sql``: rows as Arrow, errors in Spark's words."""

from __future__ import annotations

import grpc
import pyarrow as pa
from pyspark.errors import PySparkException

from catalog.errcodes import SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION, ReplicationError
from workers.lake.connect.errors import as_replication_error
from workers.lake.connect.session_conf import CACHE_ENABLED
from workers.lake.connect.sessions import CloseCatalogs, Sessions

USER_ID = "pgsub sql"


def run_query(url: str, sql: str, close_catalogs: CloseCatalogs | None = None) -> pa.Table:
    """Run any Spark SQL on the lake at ``url``. Returns the rows; for DDL and DML an empty table.

    The query is the user's, so the error quotes Spark's whole message, as no worker's error does.
    """
    # An isolated session: jars and files that the user adds (ADD JAR) end with the session.
    sessions = Sessions(
        url,
        USER_ID,
        lambda user_id, session_id: None,
        shared=False,
        close_catalogs=close_catalogs,
    )
    try:
        spark = sessions.get().spark
        spark.conf.set(CACHE_ENABLED, "true")  # a statement then loads a table once, not four times
        result: pa.Table = spark.sql(sql).toArrow()
        return result
    except PySparkException as error:
        known = as_replication_error(error, "running the query")
        if known.code.startswith("08"):
            raise known from None
        raise _in_sparks_words(error) from None
    except grpc.RpcError as error:
        raise as_replication_error(error, "running the query") from None
    finally:
        sessions.close()


def _in_sparks_words(error: PySparkException) -> ReplicationError:
    """The first line is the primary message; further lines, without Java's stack, the detail."""
    text = str(error).split("JVM stacktrace:")[0].strip()
    first, _, rest = text.partition("\n")
    state = error.getSqlState()
    return ReplicationError(
        first.strip(),
        detail=rest.strip() or None,
        sqlstate=state or SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION,
    )
