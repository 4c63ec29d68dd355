"""The linker of kernels knows the functions of the libpq that makes connections."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys

import pytest
from llvmlite import binding

from catalog.errcodes import InternalError
from workers.columnar import libpq

NAMES = (
    "PQgetCopyData",
    "PQconsumeInput",
    "PQfreemem",
    "PQsocket",
    "memcpy",
    "nanosleep",
    "clock_gettime",
    "ioctl",
)


def addresses() -> list[int]:
    return [binding.address_of_symbol(f"pgsub_{name}") or 0 for name in NAMES]


def test_every_function_has_an_address_that_stays() -> None:
    libpq.register_symbols()
    found = addresses()
    assert all(found)
    assert len(set(found)) == len(NAMES)
    libpq.register_symbols()
    assert addresses() == found


def test_the_address_is_the_function_s() -> None:
    libpq.register_symbols()
    memcpy = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)(
        addresses()[NAMES.index("memcpy")]
    )
    target = ctypes.create_string_buffer(8)
    memcpy(ctypes.cast(target, ctypes.c_char_p), b"seven", 5)
    assert target.value == b"seven"


def test_a_process_that_loaded_no_libpq_finds_that_of_the_wheel() -> None:
    code = (
        "import sys; from llvmlite import binding; from workers.columnar import libpq;"
        "assert not [name for name in sys.modules if name.startswith('psycopg')];"
        "libpq.register_symbols(); assert binding.address_of_symbol('pgsub_PQsocket')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_machine_without_libpq_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("psycopg_binary.pq", "psycopg_c.pq", "psycopg.pq._pq_ctypes"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(binding, "address_of_symbol", lambda name: None)
    with pytest.raises(InternalError, match="no libpq is loaded"):
        libpq.register_symbols()
