"""The manual pages: everything on a page of a command arrives, and ``man`` has no complaint."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT

COMMANDS = sorted((DOCS / "commands").glob("*.md"))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man")
    script = [sys.executable, "-P", str(DOCS / "make_man.py"), str(folder)]
    subprocess.run(script, cwd=ROOT, check=True, capture_output=True)
    return folder


def shown(page: Path) -> str:
    """What a reader sees, on one line, without hyphens at line ends."""
    words = ["man", "-E", "UTF-8", "-l", "-Tutf8", "--nj", "--nh", str(page)]
    done = subprocess.run(
        words, capture_output=True, text=True, check=True, env={**os.environ, "MANWIDTH": "200"}
    )
    return " ".join(re.sub(r"\x1b\[\d*m|.\x08", "", done.stdout).split())


needs_man = pytest.mark.skipif(
    shutil.which("man") is None or shutil.which("groff") is None, reason="man is not on PATH"
)


@needs_man
@pytest.mark.parametrize("source", COMMANDS, ids=lambda each: each.stem)
def test_a_page_arrives_whole(source: Path, pages: Path) -> None:
    page = pages / f"{source.stem}.1"
    said = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(page)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stderr == ""
    text = re.sub(r"\]\([^)]*\)|^```\w+|^# .*", " ", source.read_text(), flags=re.MULTILINE)
    words = set(re.findall(r"\w+", shown(page).lower()))
    assert set(re.findall(r"\w+", text.lower())) - words == set()


def test_a_line_that_begins_with_a_dot_is_text(pages: Path) -> None:
    """roff takes such a line for a request."""
    known = (".TH", ".SH", ".SS", ".PP", ".TP", ".IP", ".RS", ".RE", ".nf", ".fi")
    for page in pages.iterdir():
        lines = page.read_text().split("\n")
        wrong = [line for line in lines if line[:1] in (".", "'") and not line.startswith(known)]
        assert wrong == []
