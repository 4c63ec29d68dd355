"""What the expressions of generated columns need of a row besides what was sent."""

from __future__ import annotations

from workers.lake.sql.generated_values import numbered, used_beside

GENERATED = (("total", "price * amount"), ("label", "concat(name, '!')"))


def test_columns_that_only_the_table_has_are_fetched_once_and_in_order() -> None:
    assert used_beside(["price"], GENERATED) == ["amount", "name"]
    assert used_beside(["price", "amount", "name"], GENERATED) == []
    assert used_beside([], ()) == []


def test_a_source_s_columns_are_numbered() -> None:
    assert numbered("o", ["a", "b"]) == ["o0", "o1"]
