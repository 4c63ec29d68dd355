"""Words of the configuration for partitions and sort orders."""

from __future__ import annotations

import pytest

from catalog.errcodes import SyntaxErrorOrAccess
from catalog.table_layout import LayoutField, partition_field, sort_field


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("region", LayoutField("region")),
        (" Region ", LayoutField("Region")),
        ("identity(region)", LayoutField("region")),
        ("days(created_at)", LayoutField("created_at", "day")),
        ("HOUR( at )", LayoutField("at", "hour")),
        ("bucket(16, id)", LayoutField("id", "bucket", 16)),
        ('truncate(4,"Zip ""Code"", (x)")', LayoutField('Zip "Code", (x)', "truncate", 4)),
        ('"days(x)"', LayoutField("days(x)")),
        ("größe", LayoutField("größe")),
    ],
)
def test_a_partition_is_a_column_or_a_transform(word: str, expected: LayoutField) -> None:
    assert partition_field(word) == expected


@pytest.mark.parametrize(
    "word",
    [
        "", "days()", "days(a, b)", "days(3, a)", "bucket(a)", "bucket(0, a)", "truncate(-1, a)",
        "bucket(2147483648, a)", "zorder(a)", "a b", "a DESC", "days(a) NULLS", '"a', "a,b",
        "days(a))",
    ],
)  # fmt: skip
def test_other_words_are_refused(word: str) -> None:
    with pytest.raises(SyntaxErrorOrAccess) as error:
        partition_field(word)
    assert error.value.code == "42601"
    assert word in error.value.primary


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("a", LayoutField("a")),
        ("a desc", LayoutField("a", descending=True, nulls_first=True)),
        ("a ASC NULLS FIRST", LayoutField("a", nulls_first=True)),
        ("days(a) Desc Nulls Last", LayoutField("a", "day", descending=True)),
        ('"a desc"', LayoutField("a desc")),
    ],
)
def test_an_order_has_the_defaults_of_postgresql(word: str, expected: LayoutField) -> None:
    assert sort_field(word) == expected


@pytest.mark.parametrize("word", ["a up", "a desc nulls", "a nulls last desc", "bucket(1, a"])
def test_other_orders_are_refused(word: str) -> None:
    with pytest.raises(SyntaxErrorOrAccess):
        sort_field(word)


def test_iceberg_has_a_name_for_a_transform() -> None:
    assert LayoutField("a", "bucket", 4).iceberg_name == "bucket[4]"
    assert LayoutField("a", "day").iceberg_name == "day"
