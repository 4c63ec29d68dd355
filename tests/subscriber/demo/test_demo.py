"""The demo: its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.errcodes import ObjectNotInPrerequisiteState
from subscriber.demo import demo


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("rows")
    with pytest.raises(ObjectNotInPrerequisiteState) as caught:
        demo.run_demo(tmp_path)
    assert caught.value.hint
    assert (tmp_path / "precious").read_text() == "rows"
