"""A path or a `file:` URI as a path of this machine."""

from __future__ import annotations

import re
from pathlib import Path


def local_folder(location: str) -> Path | None:
    """A table's folder on this machine; None for one elsewhere."""
    if re.match(r"(file:)?/(?!/)|file:///(?!/)", location):
        return local(location)
    return None


def local(path: str) -> Path:
    """A file of a table on this machine: ``/x``, ``file:/x`` and ``file:///x`` are one."""
    return Path("/" + path.removeprefix("file:").lstrip("/"))
