"""Compile kernels without the GIL, and cache them on disk under a digest of all sources.

Numba notices a change in a kernel's file, but not a change in a kernel that the kernel calls. The
cache therefore lies in a folder named after all sources of this package: no process ever runs a
kernel of another version. The folder lies beside the compiled Python of this package. Where an
installation cannot be written to, as in an image, the folder lies in the user's cache, and begins
as a copy of what the installation has: Numba reads no cache that it could not write to. Without any
writable folder each process compiles the kernels.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from numba import config, njit

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def _digest() -> str:
    """The digest of all sources of this package, with the subfolders."""
    digest = hashlib.sha256()
    for source in sorted(_HERE.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


_HERE: Final = Path(__file__).parent
DIGEST: Final = _digest()
"""The version of the kernels: processes with equal digests run equal kernels."""


def _folder(installed: Path, of_user: Path) -> Path:
    """The folder for the cache: where pgsub is installed, else the user's, with the same files."""
    existing = next(each for each in (installed, *installed.parents) if each.exists())
    if os.access(existing, os.W_OK):
        return installed
    if installed.is_dir() and not of_user.exists():
        # Another process may do the same: the copy that is renamed first stays.
        partial = of_user.with_name(f"{of_user.name}.{secrets.token_hex(4)}")
        with suppress(OSError):
            shutil.copytree(installed, partial)
            partial.rename(of_user)
        shutil.rmtree(partial, ignore_errors=True)
    return of_user


def _user_cache() -> Path:
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        home = Path("/nonexistent")
    return home / "pgsub"


_NAME: Final = f"kernels-{DIGEST}"
_FOLDER: Final = str(_folder(_HERE / "__pycache__" / _NAME, _user_cache() / _NAME))


def kept() -> bool:
    """True if the cache has kernels: without a cache the compilation takes a minute.

    The folder alone says nothing: Numba creates the folder as soon as a kernel is imported.
    """
    return bool(config.CACHE_DIR) or any(Path(_FOLDER).rglob("*.nbi"))


def can_keep() -> bool:
    """True if the cache has a folder: without a writable one, no process keeps what it compiles.

    Numba has made the folder when the first kernel was imported.
    """
    return Path(_FOLDER).is_dir()


def kernel(function: Kernel) -> Kernel:
    """Compile on first use; ``NUMBA_CACHE_DIR`` overrides the folder of the cache."""
    return _compiled(function)


def inner_kernel(function: Kernel) -> Kernel:
    """A kernel for kernels only, without an entry point for Python: compiling that takes long."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _compiled(function: Kernel, **options: bool) -> Kernel:
    given = config.CACHE_DIR
    config.CACHE_DIR = given or _FOLDER
    try:
        compiled = njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # Numba raises this if no folder is writable
        compiled = njit(nogil=True, **options)(function)
    finally:
        config.CACHE_DIR = given
    return cast("Kernel", compiled)
