"""Locations of a local disk. ``/x``, ``file:/x`` and ``file:///x`` name the same file.

The launcher uses these functions before the lake server starts, and Arrow is not loaded for them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_LOCAL: Final = re.compile(r"(file:)?/(?!/)|file:///(?!/)")


def is_local(location: str) -> bool:
    """Does the location name a path of a local file system?

    A location without a scheme is local if it is an absolute path. ``file://host/x`` is not local.
    """
    return _LOCAL.match(location) is not None


def local_path(path: str) -> Path:
    """The path without ``file:``. ``path`` must be local."""
    return Path("/" + path.removeprefix("file:").lstrip("/"))
