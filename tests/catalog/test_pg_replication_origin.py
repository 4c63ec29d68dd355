"""Names of origins."""

import pytest

from catalog.pg_replication_origin import origin_name, table_of_origin


def test_an_origin_is_named_after_its_subscription_or_table() -> None:
    assert origin_name(16406) == "pg_16406"
    assert origin_name(16406, 16399) == "pg_16406_16399"


def test_the_name_of_a_table_s_origin_leads_back_to_the_table() -> None:
    assert table_of_origin(origin_name(16406, 16399)) == (16406, 16399)


@pytest.mark.parametrize("name", ["pg_16406", "pg_16406_", "pg_a_1", "x_pg_1_2", "pg_1_2_3"])
def test_any_other_name_is_of_no_table(name: str) -> None:
    assert table_of_origin(name) is None
