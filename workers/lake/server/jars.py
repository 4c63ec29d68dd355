"""The jars Spark does not bring along: Iceberg's runtime, SQLite's driver, a local file system.

Spark's Ivy resolves the jars once per environment, into a folder under the environment's prefix.
Later starts put the jars on the class path, without the network and without time for resolution.
A jar is used only if the SHA-256 of the file is the one written here, wherever the file comes from.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import quoteattr

from catalog.errcodes import ConnectionFailure, IoError
from config.limits import JARS_FETCH_SECONDS
from workers.lake.server.class_archive import ensure_base
from workers.lake.server.java import Java, write_trust_store

log = logging.getLogger(__name__)


class Jar(NamedTuple):
    """A jar of Maven's, and the SHA-256 of the file as 64 hexadecimal digits."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name of the file in our folders."""
        return f"{self.group}_{self.artifact}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        """The name that a person finds the jar by in a Maven repository."""
        return f"{self.group}:{self.artifact}:{self.version}"


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
_CENTRAL: Final = "https://repo1.maven.org/maven2/"


def spark_home() -> Path:
    """The installed pyspark's folder, with ``jars``."""
    import pyspark

    return Path(str(pyspark.__file__)).parent


def ivy_home() -> Path:
    """The folder for resolved jars: under ``sys.prefix``, else in the user's cache."""
    below_prefix = Path(sys.prefix) / "share" / "pgsub" / "ivy"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pgsub" / "ivy"
    for home in (below_prefix, cache):
        if all((home / "jars" / jar.file_name).is_file() for jar in JARS):
            return home
    for home in (below_prefix, cache):
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(home, os.W_OK):
            return home
    return cache


def resolved_jars(java: Java, conf: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """The jars, resolved first if need be; raises 08006 if a jar is not available."""
    home = ivy_home()
    ensure_base(java, home)
    paths = tuple(home / "jars" / jar.file_name for jar in JARS)
    if all(path.is_file() for path in paths):
        return paths
    with locked(home):
        for jar, path in zip(JARS, paths, strict=True):
            if not path.is_file():
                resolve(java, jar, home, conf or {})
    return paths


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """One resolution at a time per folder: a second would see half-written jars."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def sha256(path: Path) -> str:
    """The SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def put(jar: Jar, source: Path, home: Path) -> Path:
    """Copy a jar's file to ``home``, whole or not at all; 58030 if the file is not the jar."""
    if (found := sha256(source)) != jar.sha256:
        raise IoError(
            f'file "{source}" is not {jar.coordinates}',
            detail=f"The SHA-256 of the file is {found}, that of the jar is {jar.sha256}.",
            hint="Fetch the file again. If a repository or a mirror of yours answers with a "
            "different file, have the file replaced there.",
        )
    target = home / "jars" / jar.file_name
    target.parent.mkdir(exist_ok=True)
    partial = target.with_suffix(".part")
    shutil.copyfile(source, partial)
    partial.replace(target)
    return target


def resolve(java: Java, jar: Jar, home: Path, conf: Mapping[str, str]) -> Path:
    """Fetch a jar to ``home``; 08006 if the jar is unavailable, 58030 if the file is wrong."""
    log.info("resolving %s into %s", jar.coordinates, home)
    with tempfile.TemporaryDirectory(prefix="pgsub-ivy-") as name:
        work = Path(name)
        settings = conf.get("spark.jars.ivySettings") or str(_write_settings(work, conf))
        options = []
        if java.bundled and write_trust_store(work / "trust.jks"):
            options.append(f"-Djavax.net.ssl.trustStore={work / 'trust.jks'}")
        command = [
            str(java.path),
            *options,
            "-cp",
            str(spark_home() / "jars" / "*"),
            "org.apache.ivy.Main",
            *("-settings", settings, "-cache", str(home / "cache"), "-notransitive", "-warn"),
            *("-types", "jar", "-dependency", jar.group, jar.artifact, jar.version),
            *("-retrieve", f"{work}/[organization]_[artifact]-[revision].[ext]"),
        ]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=JARS_FETCH_SECONDS,
                check=False,
                stdin=subprocess.DEVNULL,
            )
            output = done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            output = "it took too long"
        fetched = work / jar.file_name
        if not fetched.is_file():
            raise ConnectionFailure(
                f'could not resolve "{jar.coordinates}"',
                detail=_reason(output),
                hint="The first start needs the network: a Maven repository, or a mirror named in"
                " DEFAULT_ARTIFACT_REPOSITORY or spark.jars.ivySettings. Without a network, bring "
                "the jars with pgsub fetch --to DIR and pgsub fetch --from DIR.",
            )
        return put(jar, fetched, home)


def _reason(output: str) -> str:
    """The line of Ivy's report with the reason, for DETAIL."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for word in ("Exception", "error", "not found", "HttpClientHandler"):
        for line in lines:
            if word.lower() in line.lower() and "::::" not in line:
                return line.strip(": ")[:300] + "."
    return lines[-1][:300] if lines else "Ivy said nothing."


def _write_settings(work: Path, conf: Mapping[str, str]) -> Path:
    """Ivy settings in Spark's order: the named repositories, then Maven Central."""
    roots = [root.strip() for root in conf.get("spark.jars.repositories", "").split(",")]
    roots.append(os.environ.get("DEFAULT_ARTIFACT_REPOSITORY") or _CENTRAL)
    resolvers = "\n".join(
        f'<ibiblio name="r{n}" m2compatible="true" usepoms="true" root={quoteattr(root)}/>'
        for n, root in enumerate(roots)
        if root
    )
    path = work / "ivysettings.xml"
    path.write_text(
        '<ivysettings><settings defaultResolver="all"/><resolvers><chain name="all">'
        f"{resolvers}</chain></resolvers></ivysettings>",
        encoding="utf-8",
    )
    return path
