"""The lake server's address, and what its parameters are called."""

from __future__ import annotations

from typing import Final

GATEWAY: Final = "pgsub-gateway"
