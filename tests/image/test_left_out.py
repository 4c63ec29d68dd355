"""What the image leaves out is not needed by a lake on S3, nor by a Spark cluster.

The tests of both run in a copy of this environment without what the image's list names. So the
list is tried without an engine, and with more than the tests of an image do: the aircompressor,
once on the list, was missed by Spark's reader of staged rows alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def slim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this environment without what the list names; the files are links."""
    copy = tmp_path_factory.mktemp("slim") / "env"
    shutil.copytree(sys.prefix, copy, symlinks=True, copy_function=_link)
    for script in (copy / "bin").iterdir():
        if script.is_file() and not script.is_symlink() and script.read_bytes()[:2] == b"#!":
            text, mode = script.read_text(), script.stat().st_mode
            script.unlink()
            script.write_text(text.replace(sys.prefix, str(copy)))
            script.chmod(mode)
    whole = Path(sysconfig.get_path("purelib"))
    packages = copy / whole.relative_to(sys.prefix)
    tool, given = (DOCS / "install" / name for name in ("leave_out.py", "left_out.txt"))
    words = [tool, given, packages, *copy.glob("share/pgsub/ivy/jars")]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # pytest itself shows code in colours.
    shutil.rmtree(packages / "pygments")
    shutil.copytree(whole / "pygments", packages / "pygments", copy_function=_link)
    return copy


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


@pytest.mark.parametrize("tests", ["lake", "cluster"])
def test_the_tests_pass_without(slim: Path, tests: str, tmp_path: Path) -> None:
    """Of a REST catalog with tables on S3, and of a Spark cluster of several processes."""
    base = f"--basetemp={tmp_path / 'base'}"
    words = ["-m", "pytest", "-q", "-n", "0", "-m", tests, f"tests/{tests}", base]
    done = subprocess.run(
        [slim / "bin" / "python", *words],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{slim / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    last = done.stdout.splitlines()[-1]
    print(last)
    assert done.returncode == 0, done.stdout[-4000:]
    assert re.search(r"\d+ passed", last)
    assert "skipped" not in last
