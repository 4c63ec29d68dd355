"""Give back the pages of the compiler's library once the kernels are loaded.

Loading a kernel from the cache links machine code, and the linker is a part of LLVM. Afterwards 66
MB of LLVM's code and constants stay in the memory of the fork server, and no process needs them
again. The pages are those of a file that no process has changed: whoever needs a page after all
reads the page from the file again.

Only mappings without a changed page are given back. A page that the dynamic linker has written to
exists in memory alone, and would be lost.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_DONT_NEED: Final = 4
"""``MADV_DONTNEED`` of Linux."""
_MAPPING: Final = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) r-[x-]p \S+ \S+ \S+ +/.*/libllvmlite\.so\n((?:\w+:.*\n)+)", re.M
)
_UNCHANGED: Final = re.compile(r"^Anonymous: +0 kB$", re.M)


def give_back_compiler() -> None:
    """Give back the unchanged pages of the compiler's library (Linux; elsewhere nothing)."""
    if sys.platform != "linux":
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for first, end in unchanged_mappings(Path("/proc/self/smaps").read_text()):
        advise(first, end - first, _DONT_NEED)


def unchanged_mappings(smaps: str) -> Iterator[tuple[int, int]]:
    """The first address and the end of each mapping of the library that no process can change."""
    for mapping in _MAPPING.finditer(smaps):
        if _UNCHANGED.search(mapping[3]):
            yield int(mapping[1], 16), int(mapping[2], 16)
