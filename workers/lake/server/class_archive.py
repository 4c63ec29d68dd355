"""The JVM's archive of parsed classes: a later start takes less than half the time.

Spark and Iceberg load some 20,000 classes until the first commit (40 s of processor time; 19 s with
the archive). A JVM that ends regularly writes the loaded classes to an archive beside the jars,
once for every Java and set of jars; later starts map the archive. The JVM ignores an archive that
does not fit, and no result depends on an archive. The archive needs an archive of Java's standard
classes. The wheel's runtime lacks the latter: ``ensure_base`` makes it when the jars are resolved.
An installation that holds both compressed is an image's (``packed_archive``).

The JVM takes an archive for every class path that begins with the archive's. The jars that only
some catalogs need are at the end of the class path, so one archive serves all catalogs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from config.limits import CLASS_DUMP_SECONDS, CLASS_DUMP_STALE_SECONDS
from workers.lake.server.java import Java
from workers.lake.server.packed_archive import packed, unpacked


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive's path, whether the archive exists yet or not.

    ``base`` is the archive of Java's standard classes, if Java brings none. ``partial`` is the file
    that the JVM writes, or None if the archive exists or the folder is not writable.
    """

    path: Path
    base: Path | None
    partial: Path | None

    @classmethod
    def of(
        cls,
        java: Java,
        class_path: Sequence[str],
        home: Path,
        cache: Path,
        more: Sequence[str] = (),
    ) -> ClassArchive:
        """The archive for a Java and the class path of every catalog.

        The archive lies below the folder of resolved jars, or is unpacked from there into
        ``cache``. ``more`` are the jars that this server adds at the end of the class path: a
        server writes an archive with them if there is none without.
        """
        folder = home / "classes"
        base = None if _own_archive(java) else _base_path(java, home)
        path = folder / f"{_digest(java, class_path)}.jsa"
        if not path.is_file() and packed(path).is_file():
            return cls._of_packed(path, base, cache / "unpacked")
        if not path.is_file():
            path = folder / f"{_digest(java, (*class_path, *more))}.jsa"
        if path.is_file() or (base is not None and not base.is_file()):
            return cls(path, base, None)
        writable = _make(folder) and os.access(folder, os.W_OK)
        if writable:
            _sweep(folder)
        partial = path.with_suffix(f".{secrets.token_hex(4)}") if writable else None
        return cls(path, base, partial)

    @classmethod
    def _of_packed(cls, path: Path, base: Path | None, folder: Path) -> ClassArchive:
        held = [path] if base is None else [path, base]
        found = [each for each in unpacked(held, folder) if each is not None]
        if len(found) < len(held):
            return cls(path, base, None)
        return cls(found[0], None if base is None else found[1], None)

    def options(self) -> list[str]:
        """The JVM's options."""
        if self.partial is not None:
            below = [f"-XX:SharedArchiveFile={self.base}"] if self.base else []
            # Otherwise the JVM logs every class that the archive leaves out.
            quiet = ["-Xlog:cds=error", "-Xlog:cds+dynamic=error"]
            return [*below, f"-XX:ArchiveClassesAtExit={self.partial}", *quiet]
        if not self.path.is_file():
            return []
        both = f"{self.base}{os.pathsep}{self.path}" if self.base else str(self.path)
        return [f"-XX:SharedArchiveFile={both}"]

    def finish(self, *, peacefully: bool) -> None:
        """Keep the archive of a JVM that has ended, unless the JVM was killed while writing."""
        if self.partial is None or not self.partial.exists():
            return
        if peacefully:
            self.partial.replace(self.path)
        else:
            self.partial.unlink()


def ensure_base(java: Java, home: Path) -> None:
    """Make the archive of Java's standard classes, if Java brings none. Never raises."""
    base = _base_path(java, home)
    if _own_archive(java) or base.is_file() or packed(base).is_file() or not _make(base.parent):
        return
    partial = base.with_suffix(f".{secrets.token_hex(4)}")
    command = [str(java.path), "-Xshare:dump", f"-XX:SharedArchiveFile={partial}"]
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=CLASS_DUMP_SECONDS, cwd=base.parent
        )
    except (OSError, subprocess.TimeoutExpired):
        partial.unlink(missing_ok=True)
        return
    if done.returncode == 0 and partial.is_file():
        partial.replace(base)
    else:
        partial.unlink(missing_ok=True)


def _own_archive(java: Java) -> bool:
    return (java.path.resolve().parent.parent / "lib" / "server" / "classes.jsa").is_file()


def _base_path(java: Java, home: Path) -> Path:
    return home / "classes" / f"java-{_digest(java, ())}.jsa"


def _sweep(folder: Path) -> None:
    """Remove the unfinished archives of killed JVMs."""
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if (
                path.suffix != ".jsa"
                and time.time() - path.stat().st_mtime > CLASS_DUMP_STALE_SECONDS
            ):
                path.unlink()


def _make(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return True


def _digest(java: Java, class_path: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for part in (str(java.path.resolve()), *class_path):
        digest.update(part.encode() + b"\0")
    release = java.path.resolve().parent.parent / "release"
    if release.is_file():
        digest.update(release.read_bytes())
    return digest.hexdigest()[:16]
