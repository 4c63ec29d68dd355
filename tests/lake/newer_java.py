"""A Java runtime for servers of the tests that need a newer one than Spark runs on."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

VARIABLE: Final = "PGSUB_NEWER_JAVA_HOME"
_USUAL: Final = Path("/usr/lib/jvm")
"""Where Debian's packages put their runtimes."""


def newer_java(least: int) -> Path | None:
    """The program of a runtime of version ``least`` or later; None if there is none.

    A runtime that the variable names is the only one that is looked at.
    """
    named = os.environ.get(VARIABLE)
    homes = [Path(named)] if named else sorted(_USUAL.glob("*"))
    fit = (home / "bin" / "java" for home in homes if _version(home) >= least)
    return next(fit, None)


def without_java(server: str, least: int) -> str:
    """What a test says that is skipped for want of a runtime."""
    return (
        f"{server} needs Java {least} or later, and none was found: set {VARIABLE} to the folder"
        f" of such a runtime, or install one below {_USUAL}"
    )


def _version(home: Path) -> int:
    """The major version of the runtime in a folder; 0 if the folder has no runtime."""
    release = home / "release"
    if not release.is_file() or not (home / "bin" / "java").is_file():
        return 0
    found = re.search(r'JAVA_VERSION="(\d+)', release.read_text(encoding="utf-8"))
    return int(found.group(1)) if found else 0
