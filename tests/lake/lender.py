"""A catalog that lends keys of the store: for each table, and for a time."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from typing import Final

_TABLE: Final = re.compile(r"/v1/namespaces/[^/]+/tables(/[^/?]+)?(\?.*)?$")
_ENDS_AFTER: Final = 305.0
"""pgsub asks for new keys when five seconds are over, and the old ones are still good then."""


class Lender:
    """Lends a set of keys to all answers of two seconds, then the next set.

    ``new_keys`` makes Iceberg's properties of a set by its number; ``end`` is the property that
    tells when the keys end. ``made`` has the sets with the time at which each began.
    """

    def __init__(self, new_keys: Callable[[int], dict[str, str]], end: str) -> None:
        self._new_keys = new_keys
        self._end = end
        self._lock = threading.Lock()
        self.made: list[tuple[float, dict[str, str]]] = []

    def keys(self) -> dict[str, str]:
        """The set of now."""
        with self._lock:
            now = time.time()
            if not self.made or now - self.made[-1][0] > 2:
                self.made.append((now, self._new_keys(len(self.made))))
            began, keys = self.made[-1]
        return {**keys, self._end: f"{(began + _ENDS_AFTER) * 1000:.0f}"}

    def rewrite(self, path: str, answer: bytes) -> bytes:
        """An answer of the catalog; one about a table gets keys."""
        if not _TABLE.search(path) or b'"metadata"' not in answer:
            return answer
        found = json.loads(answer)
        found["config"] = {**found.get("config", {}), **self.keys()}
        return json.dumps(found).encode()
