"""``lake:`` and ``spark:`` of the configuration."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from catalog.errcodes import ReplicationError
from config.lake import (
    LakeConfig,
    SparkConfig,
    check_commit_service,
    conf_here,
    has_commit_service,
    hint_beside,
    stored_lake,
)

REMOTE = "sc://spark.example:15002"
REST = {"type": "rest", "uri": "https://catalog.example"}
SQLITE = {"type": "jdbc", "uri": "jdbc:sqlite:/srv/lake/catalog.db", "warehouse": "/srv/lake"}


def test_without_anything_there_are_defaults() -> None:
    lake = stored_lake({})
    assert (lake.format, lake.format_version, lake.catalog) == ("iceberg", 2, {})
    assert lake.writer == "auto"
    assert SparkConfig() == SparkConfig(remote=None, staging=None, conf={}, commit_service="off")


def test_values_of_spark_s_configuration_become_text() -> None:
    lake = LakeConfig(catalog={"a": True, "b": False, "c": 1.5, "d": "x"})
    assert lake.catalog == {"a": "true", "b": "false", "c": "1.5", "d": "x"}


def test_the_format_version_may_be_a_number_or_text() -> None:
    assert LakeConfig.model_validate({"format_version": "3"}).format_version == 3


@pytest.mark.parametrize(
    ("model", "key", "value", "message"),
    [
        (LakeConfig, "format", "delta", "not supported yet"),
        (LakeConfig, "format", "hudi", 'invalid value for parameter "format"'),
        (LakeConfig, "format_version", 4, 'invalid value for parameter "format_version"'),
        (LakeConfig, "writer", "both", "'auto', 'files' or 'spark'"),
        (SparkConfig, "commit_service", "always", 'invalid value for parameter "commit_service"'),
        (SparkConfig, "commit_service", 1, 'invalid value for parameter "commit_service"'),
        (SparkConfig, "remote", "http://host", 'does not begin with "sc://"'),
        (SparkConfig, "staging", "relative/folder", "neither an absolute path"),
        (SparkConfig, "staging", "/a/../b", "neither an absolute path"),
        (SparkConfig, "staging", "s3://bucket", "neither an absolute path"),
        (SparkConfig, "staging", "gs://bucket/../b", "neither an absolute path"),
        (SparkConfig, "staging", "abfss://box:key@host/prefix", "neither an absolute path"),
        (SparkConfig, "staging", "abfss://host/prefix", "neither an absolute path"),
        (LakeConfig, "more", 1, "Extra inputs"),
    ],
)
def test_a_mistake_is_refused(model: Any, key: str, value: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        model.model_validate({key: value})


def test_a_staging_place_is_a_folder_or_a_bucket_with_a_prefix() -> None:
    assert SparkConfig(staging="/staged/").staging == "/staged"
    for bucket in ("s3://bucket", "s3a://bucket", "gs://a_bucket", "abfss://box@account.host.net"):
        assert SparkConfig(staging=f"{bucket}/prefix").staging == f"{bucket}/prefix"


@pytest.mark.parametrize(
    "catalog",
    [
        {"type": "jdbc", "warehouse": "/srv/lake", "uri": "jdbc:sqlite:/srv/lake/catalog.db"},
        {"type": "jdbc", "warehouse": "s3://bucket/prefix", "uri": "jdbc:postgresql://db/lake"},
        {"type": "jdbc", "warehouse": "file:///srv/lake", "uri": "jdbc:sqlite:file:/srv/c.db"},
        {"type": "rest", "warehouse": "my_wh", "uri": "https://catalog.example"},
        {"type": "glue", "warehouse": "s3://bucket/prefix"},
        {"catalog-impl": "org.apache.iceberg.rest.RESTCatalog", "warehouse": "my_wh"},
        {},
    ],
    ids=lambda catalog: " ".join(catalog.values()) or "default",
)
def test_places_and_names_are_taken(catalog: dict[str, str]) -> None:
    assert stored_lake({"lake": {"catalog": catalog}}).catalog == catalog


@pytest.mark.parametrize(
    "named",
    [
        {"type": "hadoop"},
        {"type": "Hadoop"},
        {"catalog-impl": "org.apache.iceberg.hadoop.HadoopCatalog"},
        {"spark.sql.catalog.lake.type": "hadoop"},
    ],
    ids=lambda named: next(iter(named.values())),
)
def test_hadoop_s_catalog_on_an_object_store_is_refused(named: dict[str, str]) -> None:
    lake = {"catalog": {**named, "warehouse": "s3a://bucket/prefix"}}
    with pytest.raises(ReplicationError, match="hadoop on an object store") as caught:
        stored_lake({"lake": lake})
    assert caught.value.code == "0A000"
    local = {"type": "hadoop", "warehouse": "/srv/lake"}
    assert stored_lake({"lake": {"catalog": local}}).catalog == local


@pytest.mark.parametrize(
    "catalog",
    [
        {"type": "jdbc", "warehouse": "warehouse"},
        {"type": "JDBC", "warehouse": "warehouse"},
        {"warehouse": "warehouse"},
        {"catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog", "warehouse": "warehouse"},
        {"type": "jdbc", "spark.sql.catalog.lake.warehouse": "warehouse"},
        {"type": "hadoop", "warehouse": "./warehouse"},
        {"type": "jdbc", "warehouse": "/srv/lake", "uri": "jdbc:sqlite:cat.db"},
        {"type": "jdbc", "warehouse": "/srv/lake", "uri": "jdbc:sqlite:file:cat.db"},
    ],
    ids=lambda catalog: " ".join(catalog.values()),
)
def test_a_relative_path_of_a_stored_configuration_is_refused(catalog: dict[str, str]) -> None:
    with pytest.raises(ReplicationError) as caught:
        stored_lake({"lake": {"catalog": catalog}})
    assert caught.value.code == "22023"
    assert caught.value.hint


@pytest.mark.parametrize(("written", "word"), [(True, "on"), (False, "off"), ("auto", "auto")])
def test_yaml_s_words_for_the_commit_service(written: Any, word: str) -> None:
    assert SparkConfig.model_validate({"commit_service": written}).commit_service == word


@pytest.mark.parametrize(
    ("catalog", "shared"),
    [
        (REST, True),
        ({"type": "glue", "warehouse": "s3://bucket/prefix"}, True),
        ({"uri": "thrift://metastore:9083"}, False),
        ({"catalog-impl": "org.apache.iceberg.hive.HiveCatalog"}, False),
        ({"type": "jdbc", "uri": "jdbc:postgresql://db/lake", "warehouse": "s3://b/p"}, True),
        ({"catalog-impl": "org.apache.iceberg.rest.RESTCatalog"}, True),
        (SQLITE, False),
        ({"type": "hadoop", "warehouse": "/srv/lake"}, False),
        ({"catalog-impl": "com.example.Catalog"}, False),
        ({}, False),
    ],
    ids=lambda given: " ".join(given.values()) if isinstance(given, dict) else "",
)
def test_a_commit_service_needs_a_catalog_that_two_servers_share(
    catalog: dict[str, str], shared: bool
) -> None:
    lake, spark = LakeConfig(catalog=catalog), SparkConfig(remote=REMOTE, commit_service="auto")
    assert has_commit_service(lake, spark) is shared
    asked = SparkConfig(remote=REMOTE, commit_service="on")
    check_commit_service(lake, spark)
    if shared:
        check_commit_service(lake, asked)
        return
    with pytest.raises(ReplicationError, match='"commit_service": "on"') as caught:
        check_commit_service(lake, asked)
    assert caught.value.code == "22023"


def test_why_a_hive_metastore_has_no_commit_service_is_said() -> None:
    asked = SparkConfig(remote=REMOTE, commit_service="on")
    for catalog, said in (({"type": "hive"}, "one with a lock"), ({}, "names no catalog")):
        with pytest.raises(ReplicationError) as caught:
            check_commit_service(LakeConfig(catalog=catalog), asked)
        assert said in str(caught.value.detail)


def test_the_way_out_of_a_service_that_does_not_start_is_named_behind_the_remedy() -> None:
    way = "et spark.commit_service: off: your Spark server then writes all rows."
    assert hint_beside("Install one.") == f"Install one. Or s{way}"
    assert hint_beside(None) == f"S{way}"


def test_whether_there_is_a_commit_service_can_be_said() -> None:
    lake, by_spark = LakeConfig(catalog=REST), LakeConfig(catalog=REST, writer="spark")
    auto, on = (SparkConfig(remote=REMOTE, commit_service=word) for word in ("auto", "on"))
    assert not has_commit_service(lake, SparkConfig(remote=REMOTE))  # unless asked for
    assert not has_commit_service(by_spark, auto)
    assert has_commit_service(by_spark, on)
    assert not has_commit_service(lake, SparkConfig(commit_service="on"))  # no server is elsewhere


def test_a_commit_service_runs_no_tasks_elsewhere() -> None:
    conf = {"spark.master": "spark://m:7077", "spark.pyspark.python": "/p", "spark.a": "b"}
    assert conf_here(SparkConfig(conf=conf)) == conf
    assert conf_here(SparkConfig(remote=REMOTE, conf=conf)) == {"spark.a": "b"}
