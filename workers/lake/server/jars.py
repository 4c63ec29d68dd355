"""Fetches the jars that Spark does not bring along, and knows where the jars lie.

Which jars these are follows from ``lake.catalog`` (``known_jars``). Spark's Ivy resolves a jar once
per environment, into a folder under the environment's prefix. Later starts put the jars on the
class path, without the network and without time for resolution. A jar is used only if the SHA-256
of the file is the one of ``known_jars``, wherever the file comes from.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from catalog.errcodes import IoError, ObjectNotInPrerequisiteState
from config.limits import JARS_FETCH_SECONDS
from workers.lake.server.class_archive import ensure_base
from workers.lake.server.java import Java, write_trust_store
from workers.lake.server.known_jars import JARS, Jar, needed_jars

log = logging.getLogger(__name__)


_CENTRAL: Final = "https://repo1.maven.org/maven2/"


def spark_home() -> Path:
    """The installed pyspark's folder, with ``jars``.

    The launcher asks, and would keep 18 MB of Spark's modules and numpy after an import.
    """
    spec = find_spec("pyspark")
    return Path(str(spec and spec.origin)).parent


def ivy_home() -> Path:
    """The folder for resolved jars: under ``sys.prefix``, else in the user's cache."""
    homes = _homes()
    for home in homes:
        if all((home / "jars" / jar.file_name).is_file() for jar in JARS):
            return home
    return _writable(homes)


def cache_home() -> Path:
    """The folder for jars in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pgsub" / "ivy"


def _homes() -> tuple[Path, Path]:
    return Path(sys.prefix) / "share" / "pgsub" / "ivy", cache_home()


def _writable(homes: Sequence[Path]) -> Path:
    """The first folder that this user can write to."""
    for home in homes:
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(home, os.W_OK):
            return home
    return homes[-1]


def resolved_jars(
    java: Java, conf: Mapping[str, str] | None = None, catalog: Mapping[str, str] | None = None
) -> tuple[Path, ...]:
    """The jars that a catalog needs, resolved first if need be; 55000 if a jar is unavailable.

    ``conf`` and ``catalog`` are the user's keys. A jar that only some catalogs need may lie in
    another folder than the jars of every catalog, if that folder is not this user's.
    """
    ensure_base(java, ivy_home())
    needed = needed_jars(catalog or {})
    if any(_found(jar) is None for jar in needed):
        home = _writable((ivy_home(), *_homes()))
        with locked(home):
            resolve(java, [jar for jar in needed if _found(jar) is None], home, conf or {})
    return tuple(path for jar in needed if (path := _found(jar)) is not None)


def _found(jar: Jar) -> Path | None:
    places = (home / "jars" / jar.file_name for home in (ivy_home(), *_homes()))
    return next((path for path in places if path.is_file()), None)


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


def resolve(java: Java, jars: Sequence[Jar], home: Path, conf: Mapping[str, str]) -> list[Path]:
    """Fetch jars to ``home``; 55000 if a jar is unavailable, 58030 if a file is wrong."""
    log.info("resolving %s into %s", ", ".join(jar.coordinates for jar in jars), home)
    with tempfile.TemporaryDirectory(prefix="pgsub-ivy-") as name:
        output = _run_ivy(java, jars, Path(name), home, conf)
        for jar in jars:
            if not (Path(name) / jar.file_name).is_file():
                raise ObjectNotInPrerequisiteState(
                    f'could not resolve "{jar.coordinates}"',
                    detail=_reason(output),
                    hint="The first start needs the network: a Maven repository, or a mirror named"
                    " in DEFAULT_ARTIFACT_REPOSITORY or spark.jars.ivySettings. Without a network,"
                    " bring the jars with pgsub fetch --to DIR and pgsub fetch --from DIR, or put"
                    f' the file into "{home / "jars"}" as "{jar.file_name}".',
                )
        return [put(jar, Path(name) / jar.file_name, home) for jar in jars]


def _run_ivy(
    java: Java, jars: Sequence[Jar], work: Path, home: Path, conf: Mapping[str, str]
) -> str:
    """Have Ivy put the files of the jars into ``work``. Returns what Ivy says."""
    settings = conf.get("spark.jars.ivySettings") or str(_write_settings(work, conf))
    options = []
    given = java.bundled or "SSL_CERT_FILE" in os.environ
    if given and write_trust_store(work / "trust.jks"):
        options.append(f"-Djavax.net.ssl.trustStore={work / 'trust.jks'}")
    pattern = "[organization]_[artifact]-[revision](-[classifier]).[ext]"
    command = [
        str(java.path),
        *options,
        "-cp",
        str(spark_home() / "jars" / "*"),
        "org.apache.ivy.Main",
        *("-settings", settings, "-cache", str(home / "cache"), "-notransitive", "-warn"),
        *("-ivy", str(_write_module(work, jars)), "-confs", "jars"),
        *("-types", "jar", "-retrieve", f"{work}/{pattern}"),
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
    except subprocess.TimeoutExpired:
        return "it took too long"
    return done.stdout + done.stderr


def _write_module(work: Path, jars: Sequence[Jar]) -> Path:
    """Ivy's description of a module that depends on the jars."""
    lines = []
    modules: dict[tuple[str, str, str], list[Jar]] = {}
    for jar in jars:
        modules.setdefault((jar.group, jar.artifact, jar.version), []).append(jar)
    for (group, artifact, version), files in modules.items():
        lines.append(
            f"<dependency org={quoteattr(group)} name={quoteattr(artifact)}"
            f' rev={quoteattr(version)} transitive="false" conf="jars->*">'
        )
        for jar in files:
            classifier = f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""
            # The type is a word of ours, by which Ivy is asked for all of these.
            named = f'name={quoteattr(artifact)} type="jar" ext={quoteattr(jar.extension)}'
            lines.append(f"<artifact {named}{classifier}/>")
        lines.append("</dependency>")
    path = work / "ivy.xml"
    path.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="pgsub" module="jars"/>'
        f'<configurations><conf name="jars"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>",
        encoding="utf-8",
    )
    return path


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
