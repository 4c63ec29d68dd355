"""Two commits at the same moment: who refuses one of them, by the catalog and its settings.

The metastore here is a stand-in; ``tests/lake/test_hive.py`` has a real one.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from workers.lake.api.late_commits import compares_by_itself
from workers.lake.table import LakeIdent

IDENT = LakeIdent("pg_catalog", "pgsub_probe_1")
HIVE = "org.apache.iceberg.hive.HiveCatalog"
CONF = "iceberg.engine.hive.lock-enabled"
PROPERTY = "engine.hive.lock-enabled"
MODIFIED = "MetaException(message:The table has been modified. The parameter value for key …)"


class Metastore:
    """A metastore's client that answers a change with a Java exception, or takes the change."""

    def __init__(self, refusal: str | None) -> None:
        self.refusal = refusal
        self.changes: list[tuple[str, str, str, dict[str, str]]] = []
        self.closed = 0

    def getTable(self, schema: str, table: str) -> str:  # noqa: N802 - Java's name
        return f"as {schema}.{table} is"

    def alter_table_with_environmentContext(  # noqa: N802 - Java's name
        self, schema: str, table: str, changed: str, words: dict[str, str]
    ) -> None:
        self.changes.append((schema, table, changed, words))
        if self.refusal is not None:
            thrown = SimpleNamespace(_target_id="o1", toString=lambda: self.refusal)
            raise Py4JJavaError("failed", thrown)

    def close(self) -> None:
        self.closed += 1


def api_of(
    metastore: Metastore, conf: dict[str, str], properties: dict[str, str], name: str = HIVE
) -> Any:
    """Iceberg's classes with a catalog of the class ``name``."""

    class Words(dict[str, str]):
        put = dict.__setitem__

    of_hive = SimpleNamespace(
        conf=SimpleNamespace(HiveConf=lambda given, kind: (given, kind)),
        metastore=SimpleNamespace(
            api=SimpleNamespace(EnvironmentContext=dict),
            HiveMetaStoreClient=lambda conf: metastore,
        ),
    )
    hadoop = SimpleNamespace(hive=of_hive)
    org = SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop))
    of_java = SimpleNamespace(
        lang=SimpleNamespace(Class=SimpleNamespace(forName=lambda name: name)),
        util=SimpleNamespace(HashMap=Words),
    )
    return SimpleNamespace(
        jvm=SimpleNamespace(java=of_java, org=org),
        catalog=SimpleNamespace(
            getClass=lambda: SimpleNamespace(getName=lambda: name), getConf=lambda: conf
        ),
        load=lambda ident: SimpleNamespace(properties=lambda: properties),
    )


@pytest.mark.parametrize(("refusal", "compares"), [(MODIFIED, True), (None, False)])
def test_a_metastore_without_locks_is_asked_with_a_file_that_never_was(
    refusal: str | None, compares: bool
) -> None:
    metastore = Metastore(refusal)
    assert compares_by_itself(api_of(metastore, {CONF: "false"}, {}), IDENT) is compares
    [(schema, table, changed, words)] = metastore.changes
    assert (schema, table) == ("pg_catalog", "pgsub_probe_1")
    assert changed == "as pg_catalog.pgsub_probe_1 is"
    assert words["expected_parameter_key"] == "metadata_location"
    assert not words["expected_parameter_value"].endswith(".metadata.json")
    assert metastore.closed == 1


def test_what_else_a_metastore_says_is_passed_on() -> None:
    metastore = Metastore("MetaException(message:no right)")
    with pytest.raises(Py4JJavaError):
        compares_by_itself(api_of(metastore, {CONF: "false"}, {}), IDENT)
    assert metastore.closed == 1


@pytest.mark.parametrize(
    ("conf", "properties", "name"),
    [
        ({}, {}, HIVE),
        ({CONF: "true"}, {}, HIVE),
        ({CONF: "false"}, {PROPERTY: "true"}, HIVE),
        ({CONF: "false"}, {}, "org.apache.iceberg.jdbc.JdbcCatalog"),
    ],
    ids=["unset", "locks", "the table's locks", "no metastore"],
)
def test_with_locks_and_elsewhere_nobody_is_asked(
    conf: dict[str, str], properties: dict[str, str], name: str
) -> None:
    metastore = Metastore(None)
    assert compares_by_itself(api_of(metastore, conf, properties, name), IDENT)
    assert not metastore.changes


def test_a_table_s_own_property_comes_before_the_catalog_s_setting() -> None:
    metastore = Metastore(None)
    assert not compares_by_itself(api_of(metastore, {CONF: "true"}, {PROPERTY: "False"}), IDENT)
