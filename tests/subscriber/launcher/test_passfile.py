"""Password files that no row names any more."""

from __future__ import annotations

import os
import time
from pathlib import Path

from subscriber.launcher.passfile import FOLDER, sweep_passfiles, write_passfile


def test_only_old_files_that_nobody_names_are_swept(tmp_path: Path) -> None:
    data_dir, other_way = tmp_path / "data", tmp_path / "link"
    data_dir.mkdir()
    other_way.symlink_to(data_dir)
    used, forgotten, young = (write_passfile(data_dir, f"u{n}", "secret") for n in range(3))
    past = time.time() - 7200
    for path in (used, forgotten):
        os.utime(path, (past, past))
    sweep_passfiles(data_dir, {str(other_way / FOLDER / Path(used).name), None})
    assert (Path(used).exists(), Path(forgotten).exists(), Path(young).exists()) == (
        True,
        False,
        True,
    )


def test_a_data_directory_without_passwords(tmp_path: Path) -> None:
    sweep_passfiles(tmp_path, set())
    assert not list(tmp_path.iterdir())
