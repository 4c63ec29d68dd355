"""Which pages of the compiler's library a fork server may give back."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from workers.columnar.compiler_pages import unchanged_mappings

_HEAD = "7f0000000000-7f0000001000 {rights} 00000000 08:01 7 {path}\nSize: 4 kB\n"
_BODY = _HEAD + "Anonymous: {changed:10} kB\nVmFlags: rd ex\n"
_LIBRARY = "/opt/a b/libllvmlite.so"
_RESIDENT = re.compile(r" r-xp .*/libllvmlite\.so\n(?:\w+:.*\n)*?Rss: +(\d+) kB")

_AFTER = """
import workers.fork_server_preload
print(open("/proc/self/smaps").read())
"""


@pytest.mark.parametrize(
    ("rights", "path", "changed", "given"),
    [
        ("r-xp", _LIBRARY, 0, True),
        ("r--p", _LIBRARY, 0, True),
        ("r--p", _LIBRARY, 8, False),
        ("rw-p", _LIBRARY, 0, False),
        ("r-xp", "/opt/libarrow.so", 0, False),
    ],
)
def test_only_pages_that_the_file_has_are_given_back(
    rights: str, path: str, changed: int, given: bool
) -> None:
    other = _BODY.format(rights="r-xp", path="/opt/other.so", changed=0)
    text = other + _BODY.format(rights=rights, path=path, changed=changed) + other
    expected = [(0x7F0000000000, 0x7F0000001000)] if given else []
    assert list(unchanged_mappings(text)) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_the_fork_server_keeps_little_of_the_compiler() -> None:
    """51 MB of code otherwise."""
    home = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", _AFTER], capture_output=True, text=True, check=True, cwd=home
    )
    found = _RESIDENT.findall(done.stdout)
    assert found
    assert sum(map(int, found)) < 10_000
