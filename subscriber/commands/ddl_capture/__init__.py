"""Event triggers on the publisher, for changes of tables."""

from enum import StrEnum


class Action(StrEnum):
    """An act upon the event triggers."""

    INSTALL = "install"
    UNINSTALL = "uninstall"
