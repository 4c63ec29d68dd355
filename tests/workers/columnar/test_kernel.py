"""Where compiled kernels are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from numba import config, njit

from workers.columnar import kernel as home
from workers.columnar.kernel import kernel


def double(value: int) -> int:
    return value * 2


def test_the_cache_lies_under_the_digest_of_all_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "_FOLDER", str(tmp_path / "kernels"))
    monkeypatch.setattr(config, "CACHE_DIR", "")
    assert kernel(double)(21) == 42
    assert list((tmp_path / "kernels").rglob("*.nbi"))
    assert config.CACHE_DIR == ""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "given"))
    assert kernel(double)(21) == 42
    assert list((tmp_path / "given").rglob("*.nbi"))


def test_another_source_means_another_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert home.DIGEST in home._FOLDER
    (tmp_path / "one.py").write_text("1")
    monkeypatch.setattr(home, "_HERE", tmp_path)
    before = home._digest()
    (tmp_path / "one.py").write_text("2")
    assert len({home.DIGEST, before, home._digest()}) == 3


def test_they_are_kept_once_they_were_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("numba.config.CACHE_DIR", "")
    monkeypatch.setattr(home, "_FOLDER", str(tmp_path / "kernels-1"))
    assert not home.kept()
    assert not home.can_keep()
    twice = kernel(double)
    assert home.can_keep()
    assert not home.kept(), "an imported kernel has a folder and is not compiled"
    assert twice(21) == 42
    assert home.kept()


def test_an_installation_that_cannot_be_written_to_lends_its_kernels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed, of_user = tmp_path / "lib" / "kernels-1", tmp_path / "cache" / "kernels-1"
    assert home._folder(installed, of_user) == installed, "a folder of ours"
    monkeypatch.setattr(
        "os.access", lambda path, _mode: tmp_path / "lib" not in (path, path.parent)
    )
    installed.mkdir(parents=True)
    assert home._folder(installed, of_user) == of_user
    assert not list(installed.iterdir())
    of_user.rmdir()
    (installed / "fold.nbi").write_text("compiled")
    assert home._folder(installed, of_user) == of_user
    (installed / "fold.nbi").write_text("later")
    assert home._folder(installed, of_user) == of_user
    assert [(each.name, each.read_text()) for each in of_user.iterdir()] == [
        ("fold.nbi", "compiled")
    ]
    assert [each.name for each in of_user.parent.iterdir()] == ["kernels-1"]


def test_kernels_run_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**how: Any) -> Any:
        if how.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**how)

    monkeypatch.setattr(home, "njit", refuse)
    assert kernel(double)(21) == 42
