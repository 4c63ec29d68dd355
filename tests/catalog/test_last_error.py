"""When two errors count as one."""

from dataclasses import replace
from typing import Any

import pytest

from catalog.last_error import LastError

ERROR = LastError(16406, 0, 1, "08006", "could not connect", "No route.", "Try again.")


def test_time_and_place_do_not_matter() -> None:
    assert ERROR.is_same_error(replace(ERROR, since=2, relid=16399))


@pytest.mark.parametrize("field", ["sqlstate", "message", "detail", "hint"])
def test_any_part_of_the_text_matters(field: str) -> None:
    changed: dict[str, Any] = {field: "different"}
    assert not ERROR.is_same_error(replace(ERROR, **changed))
    assert not ERROR.is_same_error(None)
