"""The parameters of the lake server's URL."""

from __future__ import annotations

from typing import Final

GATEWAY: Final = "pgsub-gateway"
"""Port and secret of the embedded server's Java gateway, as ``PORT.SECRET``."""
