"""Where kernels are compiled that the cache does not have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workers.columnar import kernel
from workers.columnar import warm as home


@pytest.mark.parametrize("fails", [False, True])
def test_kernels_are_compiled_in_a_process_that_ends(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = tmp_path / "compiled"

    def warm() -> None:
        compiled.write_text(f"{os.getpid()} {os.getppid()}")
        if fails:
            raise MemoryError

    monkeypatch.setattr(home, "warm", warm)
    monkeypatch.setattr(home, "kept", lambda: False)
    monkeypatch.setattr(home, "can_keep", lambda: True)
    home.compile_apart()
    child, parent = map(int, compiled.read_text().split())
    assert (child != os.getpid(), parent) == (True, os.getpid())
    with pytest.raises(ChildProcessError):
        os.waitpid(child, os.WNOHANG)


def test_kernels_of_the_cache_need_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "kept", lambda: True)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a process was forked"))
    home.compile_apart()


def test_where_nothing_can_be_kept_kernels_are_compiled_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("numba.config.CACHE_DIR", "")
    monkeypatch.setattr(kernel, "_FOLDER", str(tmp_path / "not made"))
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a process compiles for nobody"))
    home.compile_apart()


_LOADED = """
from workers.columnar.warm import warm
warm()
from workers.columnar.frame import record_end
from workers.columnar.frame_slices import _slice_end
print(all(each.signatures[0][0].mutable is False for each in (_slice_end, record_end)))
"""


def test_a_worker_links_no_kernel_to_cut_a_transaction_into_slices() -> None:
    """Linking one would read 50 MB of the compiler into the worker, beside a large transaction."""
    command = [sys.executable, "-c", _LOADED]
    assert subprocess.check_output(command, text=True).split() == ["True"]
