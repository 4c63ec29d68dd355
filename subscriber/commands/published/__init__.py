"""Tables that join or leave a publication by themselves."""

from typing import Final

LOOK_MODULE: Final = "subscriber.commands.published.auto_refresh"
"""The module of the launcher's process (``subscriber.launcher.publication_look``)."""
