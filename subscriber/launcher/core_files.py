"""No core files: a process that crashes leaves no passwords and rows in a file."""

from __future__ import annotations

import resource
from typing import Final

_ONE_BYTE: Final = 1
"""Too little for a core file. A limit of 0 would not do: Linux still hands the core to a program (a
``core_pattern`` beginning with ``|``) at any limit but 1."""


def switch_off_core_files() -> None:
    """Switch core files off for the calling process and its children: workers, lake server, Spark.

    The hard limit stays. A developer who needs a core can raise the soft limit again:
    ``prlimit --core=… --pid …``.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard != 0:
        resource.setrlimit(resource.RLIMIT_CORE, (_ONE_BYTE, hard))
