"""What a look-up that finds nothing answers."""

from __future__ import annotations

import pytest

from workers.lake.segment import no_keys_found


@pytest.mark.parametrize("others", [0, 1, 3])
def test_no_key_has_a_column_for_each_that_was_looked_up(others: int) -> None:
    found = no_keys_found(others)
    assert found.num_rows == 0
    assert found.column_names == ["k", *(f"k{n}" for n in range(1, others + 1))]
    assert {str(field.type) for field in found.schema} == {"int64"}
