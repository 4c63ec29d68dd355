"""The jars that a configuration needs."""

from __future__ import annotations

import pytest

from workers.lake.server.known_jars import (
    CLIENTS,
    JARS,
    OPTIONAL,
    POSTGRESQL,
    Jar,
    needed_jars,
)
from workers.lake.storage.bucket import FileStore


def test_the_embedded_lake_needs_the_jars_of_every_configuration() -> None:
    assert needed_jars({}) == JARS


@pytest.mark.parametrize(
    ("catalog", "more"),
    [
        ({"type": "rest", "warehouse": "s3://b/p"}, [*CLIENTS[FileStore.S3]]),
        ({"type": "jdbc", "uri": "jdbc:postgresql://host/lake"}, [POSTGRESQL]),
        (
            {"type": "jdbc", "uri": "jdbc:postgresql://host/lake", "warehouse": "gs://b/p"},
            [*CLIENTS[FileStore.GCS], POSTGRESQL],
        ),
        ({"type": "rest", "warehouse": "abfss://b@a.host/p"}, [*CLIENTS[FileStore.ADLS]]),
        ({"type": "jdbc", "uri": "jdbc:sqlite:/srv/catalog.db"}, []),
        ({"type": "hive", "uri": "thrift://host:9083"}, []),
    ],
    ids=str,
)
def test_a_catalog_gets_what_its_store_and_its_database_need(
    catalog: dict[str, str], more: list[Jar]
) -> None:
    assert needed_jars(catalog) == (*JARS, *more)


def test_every_jar_that_is_fetched_has_a_checksum() -> None:
    for jar in (*JARS, *OPTIONAL):
        assert len(bytes.fromhex(jar.sha256)) == 32


def test_a_classifier_is_part_of_the_names() -> None:
    jar = Jar("a.group", "name", "1.0", "", "tests")
    assert jar.file_name == "a.group_name-1.0-tests.jar"
    assert jar.coordinates == "a.group:name:1.0:jar:tests"


def test_the_kind_of_a_file_that_is_no_jar_is_part_of_the_names() -> None:
    server = Jar("a.group", "name", "1.0", "", extension="tar.gz")
    assert server.file_name == "a.group_name-1.0.tar.gz"
    assert server.coordinates == "a.group:name:1.0:tar.gz"
