"""The jars Spark does not bring along: Iceberg's runtime, SQLite's driver, a local file system.

Spark's Ivy resolves the jars once per environment, into a folder under the environment's prefix.
Later starts put the jars on the class path, without the network and without time for resolution.
"""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from catalog.errcodes import ConnectionFailure
from config.limits import JARS_FETCH_SECONDS
from workers.lake.server.class_archive import ensure_base
from workers.lake.server.java import Java, write_trust_store

log = logging.getLogger(__name__)

COORDINATES: Final = (
    ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.11.0"),
    ("org.xerial", "sqlite-jdbc", "3.50.3.0"),
    # Hadoop's local file system forks a chmod for every file; a small commit writes ten files.
    ("com.globalmentor", "hadoop-bare-naked-local-fs", "0.1.0"),
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
        if all((home / "jars" / name).is_file() for name in _names()):
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
    jars = tuple(home / "jars" / name for name in _names())
    if all(jar.is_file() for jar in jars):
        return jars
    with _locked(home):
        for coordinate, jar in zip(COORDINATES, jars, strict=True):
            if not jar.is_file():
                resolve(java, coordinate, home, conf or {})
    return jars


def _names() -> list[str]:
    return [f"{group}_{artifact}-{version}.jar" for group, artifact, version in COORDINATES]


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """One resolution at a time per folder: a second would see half-written jars."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def resolve(
    java: Java, coordinate: tuple[str, str, str], home: Path, conf: Mapping[str, str]
) -> Path:
    """Fetch a jar, by group, artifact and version, to ``home``; 08006 if unavailable."""
    group, artifact, version = coordinate
    log.info("resolving %s:%s:%s into %s", group, artifact, version, home)
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
            *("-types", "jar", "-dependency", group, artifact, version),
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
        jar = work / f"{group}_{artifact}-{version}.jar"
        if not jar.is_file():
            raise ConnectionFailure(
                f'could not resolve "{group}:{artifact}:{version}"',
                detail=_reason(output),
                hint="The first start needs the network: a Maven repository, or a mirror named in"
                " DEFAULT_ARTIFACT_REPOSITORY or spark.jars.ivySettings.",
            )
        target = home / "jars" / jar.name
        target.parent.mkdir(exist_ok=True)
        partial = target.with_suffix(".part")
        partial.write_bytes(jar.read_bytes())
        partial.replace(target)
        return target


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
