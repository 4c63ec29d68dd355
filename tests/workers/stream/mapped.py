"""A batch whose bytes lie in a mapped file."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from workers.stream.batch import Batch


def mapped_batch(directory: Path, pages: int) -> Batch:
    """One transaction of whole pages; the file is mapped as the spool maps its files."""
    size = pages * mmap.PAGESIZE
    file = directory / "batch"
    file.write_bytes(bytes(at // mmap.PAGESIZE + 1 for at in range(size)))
    with file.open("rb") as opened:
        mapping = mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_READ)
    # Each page is then memory only once somebody has read the page.
    mapping.madvise(mmap.MADV_RANDOM)
    commits = np.array([[size, 99, 100, 0, 1]], dtype=np.int64)
    return Batch(np.frombuffer(mapping, np.uint8), 0, size, commits, mapping)


def resident_pages(batch: Batch) -> int:
    """The mapping's pages that count as memory of this process, by ``/proc/self/smaps``."""
    found = 0
    inside = False
    address = f"{batch.buf.ctypes.data:x}-"
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            inside = words[0].startswith(address)
        elif inside and words[0] == "Rss:":
            found = int(words[1]) * 1024 // mmap.PAGESIZE
    return found
