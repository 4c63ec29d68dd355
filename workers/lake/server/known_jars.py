"""The jars that pgsub knows, with checksums, and the jars that a configuration needs.

Every configuration needs Iceberg's runtime, SQLite's driver and a local file system. A catalog
may need more: the client of the tables' file store (``file_store``), and the driver of the
catalog's database. Iceberg's runtime and Spark bring what a Hive Metastore needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from config.lake import plain_keys
from workers.lake.server.file_store import FileStore, clients_of

BY_HAND: Final = ""
"""In place of an unknown checksum: a person puts the file into the folder."""


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
CLIENTS: Final = {
    FileStore.S3: Jar(
        "org.apache.iceberg",
        "iceberg-aws-bundle",
        "1.11.0",
        "38f01da7e96850cdd05e6616d758b77b43314b712a8808e3f9a824d56976162f",
    ),
    FileStore.GCS: Jar(
        "org.apache.iceberg",
        "iceberg-gcp-bundle",
        "1.11.0",
        "d9248fc76d94d232e153bf760631229cd3b7c6bc3b20f47d4b2caffe011a8a2f",
    ),
    FileStore.ADLS: Jar("org.apache.iceberg", "iceberg-azure-bundle", "1.11.0", BY_HAND),
}
OPTIONAL: Final = tuple(jar for jar in (POSTGRESQL, *CLIENTS.values()) if jar.sha256 != BY_HAND)
"""The jars that some configurations need, and that pgsub fetches."""


def needed_jars(catalog: Mapping[str, str]) -> tuple[Jar, ...]:
    """The jars that a server with this ``lake.catalog`` needs, in the order of the class path."""
    clients = clients_of(catalog)
    found = [jar for store, jar in CLIENTS.items() if store in clients]
    if plain_keys(catalog).get("uri", "").startswith("jdbc:postgresql:"):
        found.append(POSTGRESQL)
    return (*JARS, *found)
