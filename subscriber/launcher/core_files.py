"""No core files: a process of ours that crashes leaves none of the passwords and rows it held."""

from __future__ import annotations

import resource
from typing import Final

_ONE_BYTE: Final = 1
"""Too little for a core in a file. Linux hands one to a program (a ``core_pattern`` that begins
with ``|``) whatever the limit is, 0 included, unless it is 1."""


def switch_off_core_files() -> None:
    """For this process and all that it starts: workers, the lake server, Spark's Python.

    The hard limit stays, so that who hunts a crash can have a core: ``prlimit --core=… --pid …``.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard != 0:
        resource.setrlimit(resource.RLIMIT_CORE, (_ONE_BYTE, hard))
