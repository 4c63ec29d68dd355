"""What docs/install/image.md says, with the values that the tests put in."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from tests.docs.pages import DOCS, blocks

PAGE: Final = DOCS / "install" / "image.md"
IMAGE: Final = "pgsub"
PASSWORD: Final = "planted7c2ePassword"
HOST: Final = "planted4b1f.invalid"
"""A host that pip trusts while the image is built, and that the image must not know."""
PATIENCE: Final = 300.0


def example() -> tuple[str, str]:
    """The commands that build the image, and the commands that run it."""
    [text] = blocks(PAGE, "sh")
    built, found, started = text.partition("docker run")
    assert found
    return built, found + started


def run(script: str, folder: Path) -> None:
    """Run a part of the page."""
    words = ["env", f"SALES_PASSWORD={PASSWORD}", "bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
