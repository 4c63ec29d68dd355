"""The jars that pgsub knows, with checksums, and the jars that a configuration needs.

Every configuration needs Iceberg's runtime, SQLite's driver and a local file system. A catalog
may need more: the client of the tables' file store (``file_store``), and the driver of the
catalog's database. Iceberg's runtime and Spark bring what a Hive Metastore needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from config.lake import plain_keys
from workers.lake.server.file_store import clients_of
from workers.lake.storage.bucket import FileStore


class Jar(NamedTuple):
    """A jar of Maven's, and the SHA-256 of the file as 64 hexadecimal digits.

    An ``extension`` names a file of another kind, as the tests fetch.
    """

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def file_name(self) -> str:
        """The name of the file in our folders."""
        end = f"-{self.classifier}" if self.classifier else ""
        return f"{self.group}_{self.artifact}-{self.version}{end}.{self.extension}"

    @property
    def coordinates(self) -> str:
        """The name that a person finds the jar by in a Maven repository."""
        end = f":{self.extension}" if self.classifier or self.extension != "jar" else ""
        end += f":{self.classifier}" if self.classifier else ""
        return f"{self.group}:{self.artifact}:{self.version}{end}"


JARS: Final = (
    Jar(
        "org.apache.iceberg",
        "iceberg-spark-runtime-4.1_2.13",
        "1.11.0",
        "d6ea6c5d099288daeb7d5a92061bd3d7d8f296492632b42378e5f2f0e3066242",
    ),
    Jar(
        "org.xerial",
        "sqlite-jdbc",
        "3.50.3.0",
        "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",
    ),
    # Hadoop's local file system forks a chmod for every file; a small commit writes ten files.
    Jar(
        "com.globalmentor",
        "hadoop-bare-naked-local-fs",
        "0.1.0",
        "e0cc30fb0531eb0b59468dc0abf5b257533d2365b5e9f45e795edd707aa78c62",
    ),
)
"""The jars of every configuration."""

POSTGRESQL: Final = Jar(
    "org.postgresql",
    "postgresql",
    "42.7.8",
    "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
)
AWS: Final = Jar(
    "org.apache.iceberg",
    "iceberg-aws-bundle",
    "1.11.0",
    "38f01da7e96850cdd05e6616d758b77b43314b712a8808e3f9a824d56976162f",
)
_GOOGLE: Final = Jar(
    "org.apache.iceberg",
    "iceberg-gcp-bundle",
    "1.11.0",
    "d9248fc76d94d232e153bf760631229cd3b7c6bc3b20f47d4b2caffe011a8a2f",
)
# In place of Iceberg's bundle: Azure's client, and what Spark does not bring. The HTTP client is
# Java's own, because Azure's usual one is for an older Netty than Spark's.
_AZURE: Final = (
    Jar(
        "com.azure",
        "azure-core",
        "1.57.1",
        "91d80ad97f04040d522bb1db16b0f507fd5ffecd4d6178ad9b9764360c02eedb",
    ),
    Jar(
        "com.azure",
        "azure-core-http-jdk-httpclient",
        "1.1.3",
        "7b3768324421c60c783540f9a9300903f4b546ed6ff51b6f8a225840fbc61e99",
    ),
    Jar(
        "com.azure",
        "azure-identity",
        "1.18.2",
        "c4ae70f3b4287afa7e547f26d57658ab71ec6a935608a8399ccc0eab3bb58288",
    ),
    Jar(
        "com.azure",
        "azure-json",
        "1.5.1",
        "bad21d5eb306d82b85951b58a1d9e501a9b09970e452bee6d4d445fd5a91c519",
    ),
    Jar(
        "com.azure",
        "azure-storage-blob",
        "12.33.3",
        "5830fe102d9f7746332adadada3a6ac5db5e8a819b4a59ace100be5dde8c29f1",
    ),
    Jar(
        "com.azure",
        "azure-storage-common",
        "12.32.2",
        "8f324c8a04a088f32c753c4885b9962ccb5fd2f326e4b00096450d6474905947",
    ),
    Jar(
        "com.azure",
        "azure-storage-file-datalake",
        "12.26.3",
        "5fb39430caff8a2655292231aae7e06efaa23415bdda9d2c373cbd05b89cdab8",
    ),
    Jar(
        "com.azure",
        "azure-storage-internal-avro",
        "12.18.2",
        "73a54dcbb184e61ec00b95d2564287fc2b983ed77e4014e231faa94a9d313d5c",
    ),
    Jar(
        "com.azure",
        "azure-xml",
        "1.2.1",
        "08b458481b656554605215ab0b165f68e6025359e52bea4736d032328d40ba3b",
    ),
    Jar(
        "com.microsoft.azure",
        "msal4j",
        "1.23.1",
        "414d4fe3c66c7bb1a741014f352e5f0a8329172703e7fbb0020d232a8c8385b1",
    ),
    Jar(
        "com.microsoft.azure",
        "msal4j-persistence-extension",
        "1.3.0",
        "dfc41c817fbfa76057af6ffe4379dbca6a5e16b8e87df8bdda23f371756c2d09",
    ),
    Jar(
        "io.projectreactor",
        "reactor-core",
        "3.7.14",
        "597d9510599ab737e1860dd85c10ae29b38e92c81ef86b5d8f486586a8efcf70",
    ),
    Jar(
        "org.reactivestreams",
        "reactive-streams",
        "1.0.4",
        "f75ca597789b3dac58f61857b9ac2e1034a68fa672db35055a8fb4509e325f28",
    ),
)
CLIENTS: Final = {FileStore.S3: (AWS,), FileStore.GCS: (_GOOGLE,), FileStore.ADLS: _AZURE}
OPTIONAL: Final = (POSTGRESQL, AWS, _GOOGLE, *_AZURE)
"""The jars that some configurations need, and that pgsub fetches."""


def needed_jars(catalog: Mapping[str, str]) -> tuple[Jar, ...]:
    """The jars that a server with this ``lake.catalog`` needs, in the order of the class path."""
    clients = clients_of(catalog)
    found = [jar for store, jars in CLIENTS.items() if store in clients for jar in jars]
    if plain_keys(catalog).get("uri", "").startswith("jdbc:postgresql:"):
        found.append(POSTGRESQL)
    return (*JARS, *found)
