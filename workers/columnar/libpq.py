"""The functions of libpq and libc that kernels call, without Python in between.

A kernel must call the libpq that made the connection; psycopg's module leads to this libpq.
Addresses differ from process to process, while kernels are cached on disk. Kernels therefore call
functions by name, and ``register_symbols`` gives the names their addresses in a process.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path
from typing import Final

from llvmlite import binding
from numba import types

from catalog.errcodes import InternalError

_PREFIX: Final = "pgsub_"

get_copy_data = types.ExternalFunction(
    _PREFIX + "PQgetCopyData", types.int32(types.intp, types.intp, types.int32)
)
consume_input = types.ExternalFunction(_PREFIX + "PQconsumeInput", types.int32(types.intp))
freemem = types.ExternalFunction(_PREFIX + "PQfreemem", types.void(types.intp))
socket = types.ExternalFunction(_PREFIX + "PQsocket", types.int32(types.intp))
ioctl = types.ExternalFunction(_PREFIX + "ioctl", types.int32(types.int32, types.intp, types.intp))
memcpy = types.ExternalFunction(_PREFIX + "memcpy", types.intp(types.intp, types.intp, types.intp))
nanosleep = types.ExternalFunction(_PREFIX + "nanosleep", types.int32(types.intp, types.intp))
clock_gettime = types.ExternalFunction(
    _PREFIX + "clock_gettime", types.int32(types.int32, types.intp)
)


def register_symbols() -> None:
    """Give the compiler's linker the addresses of the functions; safe to repeat.

    Raises ``InternalError`` if no libpq can be found.
    """
    if binding.address_of_symbol(_PREFIX + "PQgetCopyData"):
        return
    libpq, libc = _libpq(), ctypes.CDLL(None)
    for library, names in (
        (libpq, ("PQgetCopyData", "PQconsumeInput", "PQfreemem", "PQsocket")),
        (libc, ("memcpy", "nanosleep", "clock_gettime", "ioctl")),
    ):
        for name in names:
            address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            binding.add_symbol(_PREFIX + name, address)


def _libpq() -> ctypes.CDLL:
    """The path of the loaded libpq, else of the libpq in psycopg's wheel."""
    for name in ("psycopg_binary.pq", "psycopg_c.pq"):
        module = sys.modules.get(name)
        if module is not None and module.__file__:
            return ctypes.CDLL(module.__file__)
    wrapper = sys.modules.get("psycopg.pq._pq_ctypes")
    if wrapper is not None:
        library: ctypes.CDLL = wrapper.pq
        return library
    spec = importlib.util.find_spec("psycopg_binary")
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in sorted(Path(folder).glob("pq.*.so")):
            return ctypes.CDLL(str(path))
    raise InternalError("no libpq is loaded")
