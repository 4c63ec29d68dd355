"""What the JVMs of tests are told: none lives for long."""

from __future__ import annotations

import os
from typing import Final

SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""A lake server of some minutes does not earn back what its better compiler takes, a quarter of its
processor time. Without that comes a fifth of the room for code, which one that nobody kills fills
up; so it has the usual."""


def expect_short_lives() -> None:
    """For every JVM that this process or one of its children starts, unless it is told otherwise
    already."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED)
