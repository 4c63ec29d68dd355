"""What happened in a run, on the disk."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any


class Events:
    """What happened in a run, a JSON object a line."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / "events.jsonl").open("w")
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def add(self, what: str, **more: Any) -> None:
        """Now."""
        with self._lock:
            at = round(time.monotonic() - self._began, 3)
            print(json.dumps({"at": at, "what": what, **more}), file=self._file, flush=True)

    def close(self) -> None:
        """The run is over."""
        self._file.close()
