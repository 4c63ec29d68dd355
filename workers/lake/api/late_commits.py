"""Commits of the probe of a catalog, as a worker that was asleep would make the commits.

``late_move_of_main`` is based on a stale state of the table. Iceberg's own commits read the newest
state first.

A Hive Metastore needs a second look (``compares_by_itself``). Iceberg commits to a metastore with a
lock or without (``engine.hive.lock-enabled``). In both ways the client compares the metadata file
of the table with the file that the commit is based on: a commit that is late by more than a moment
is refused. With a lock, no other client changes the table between the comparison and the change.
Without a lock the change names the file, and the metastore compares a second time, if the metastore
is of Hive 2.3.10 or 4. An older metastore takes no notice of the name: of two commits at the same
moment both succeed, and the rows of one are lost without an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from workers.lake.api.java_api import JavaApi
from workers.lake.table import LakeIdent

_HIVE_CATALOG: Final = "org.apache.iceberg.hive.HiveCatalog"
_BY_LOCKS: Final = "engine.hive.lock-enabled"
_FILE: Final = "metadata_location"
_NO_FILE: Final = "no file of pgsub's scratch table"
_REFUSAL: Final = "The table has been modified"


def late_move_of_main(api: JavaApi, ident: LakeIdent, branch: str) -> Callable[[], None]:
    """A commit that moves ``main`` to the branch, on the state of the table as of now."""
    operations = api.load(ident).operations()
    base = operations.current()
    tip = base.ref(branch).snapshotId()
    return lambda: api.move_main(operations, base, tip)


def compares_by_itself(api: JavaApi, ident: LakeIdent) -> bool:
    """Does nothing but the client's own comparison stand between two commits to the table?

    False for a Hive Metastore that takes a change of the scratch table based on a file that never
    was. The change sets the table to what the table is. True for other catalogs, and with locks.
    """
    if str(api.catalog.getClass().getName()) != _HIVE_CATALOG or _locks(api, ident):
        return True
    client = _metastore_client(api)
    try:
        table = client.getTable(ident.schema, ident.table)
        words = api.jvm.java.util.HashMap()
        words.put("expected_parameter_key", _FILE)
        words.put("expected_parameter_value", _NO_FILE)
        context = api.jvm.org.apache.hadoop.hive.metastore.api.EnvironmentContext(words)
        client.alter_table_with_environmentContext(ident.schema, ident.table, table, context)
    except Py4JJavaError as error:
        thrown: Any = error.java_exception
        if _REFUSAL in str(thrown.toString()):
            return True
        raise
    finally:
        client.close()
    return False


def _locks(api: JavaApi, ident: LakeIdent) -> bool:
    """Does Iceberg commit to the table with a lock?"""
    said = api.load(ident).properties().get(_BY_LOCKS)
    if said is None:
        said = api.catalog.getConf().get(f"iceberg.{_BY_LOCKS}")
    return said is None or str(said).strip().lower() != "false"


def _metastore_client(api: JavaApi) -> Any:
    """A client of the catalog's metastore, with the settings of the catalog's own clients."""
    hive = "org.apache.hadoop.hive.conf.HiveConf"
    settings = api.jvm.java.lang.Class.forName(hive)
    conf = api.jvm.org.apache.hadoop.hive.conf.HiveConf(api.catalog.getConf(), settings)
    return api.jvm.org.apache.hadoop.hive.metastore.HiveMetaStoreClient(conf)
