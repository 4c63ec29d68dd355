"""How kernels are compiled: without the GIL, and cached on disk under what they are made of.

Numba notices that a kernel's own file changed, but not that a kernel it calls did, so the cache
lies in a folder named after all sources of this package: no process ever runs a kernel of another
version. Where nothing can be written, kernels are compiled anew in each process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from numba import config, njit

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def _digest() -> str:
    """The digest of this package's sources, its folders included."""
    digest = hashlib.sha256()
    for source in sorted(_HERE.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


_HERE: Final = Path(__file__).parent
DIGEST: Final = _digest()
"""Which kernels these are: two processes with one digest run the same ones."""
_FOLDER: Final = str(_HERE / "__pycache__" / f"kernels-{DIGEST}")
"""Beside the compiled Python of this package."""


def kept() -> bool:
    """Whether kernels were compiled here before, so that it does not take this process a minute."""
    return bool(config.CACHE_DIR) or Path(_FOLDER).is_dir()


def kernel(function: Kernel) -> Kernel:
    """Compile on first use; ``NUMBA_CACHE_DIR`` overrides where the result is kept."""
    return _compiled(function)


def inner_kernel(function: Kernel) -> Kernel:
    """A kernel that only kernels call: nothing is compiled for Python's sake, which takes long."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _compiled(function: Kernel, **options: bool) -> Kernel:
    given = config.CACHE_DIR
    config.CACHE_DIR = given or _FOLDER
    try:
        compiled = njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # what Numba raises when no folder can be written
        compiled = njit(nogil=True, **options)(function)
    finally:
        config.CACHE_DIR = given
    return cast("Kernel", compiled)
