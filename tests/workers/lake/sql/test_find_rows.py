"""Queries that find rows of a branch, as text."""

from __future__ import annotations

from workers.lake.sql.find_rows import (
    count_repeated,
    find_any_key,
    find_keys,
    find_positions,
)
from workers.lake.sql.merge import TARGET, KeyBounds
from workers.lake.table import LakeIdent

PLAIN = LakeIdent("public", "orders")


def plain(sql: str) -> str:
    """With a shorter name for the target."""
    return sql.replace(TARGET, "t")


def test_keys_are_looked_for_within_bounds() -> None:
    assert plain(find_keys(PLAIN, "b", ("b", "a"))) == (
        "SELECT `s`.`k` AS `k` FROM `lake`.`public`.`orders`.`branch_b` AS t JOIN s"
        " ON `t`.`b` = `s`.`b0` AND `t`.`a` = `s`.`b1`"
    )
    bounded = find_keys(PLAIN, None, ("id",), KeyBounds("id", 1, 9))
    assert plain(bounded).endswith("ON `t`.`id` = `s`.`b0` AND `t`.`id` BETWEEN 1 AND 9")


def test_rows_are_looked_for_by_several_keys() -> None:
    assert plain(find_any_key(PLAIN, "b", [("s", ("a", "b")), ("s1", ("c",))])) == (
        "SELECT `s`.`k` AS `k` , `s1`.`k` AS `k1` FROM `lake`.`public`.`orders`.`branch_b` AS t"
        " LEFT JOIN s ON `t`.`a` = `s`.`b0` AND `t`.`b` = `s`.`b1`"
        " LEFT JOIN s1 ON `t`.`c` = `s1`.`b0`"
        " WHERE (NOT `s`.`k` IS NULL OR NOT `s1`.`k` IS NULL)"
    )
    assert plain(find_any_key(PLAIN, None, [("s", ()), ("s1", ("c",))], "x")).startswith(
        "SELECT CAST(NULL AS BIGINT) AS `k` , `s1`.`k` AS `k1` FROM `lake`.`public`.`orders` AS t"
        " LEFT JOIN s1"
    )


def test_repeated_keys_are_counted() -> None:
    assert plain(count_repeated(PLAIN, "b", ("a", "b"))) == (
        "SELECT count(*) AS n FROM (SELECT 1 FROM `lake`.`public`.`orders`.`branch_b` AS t WHERE"
        " NOT `t`.`a` IS NULL AND NOT `t`.`b` IS NULL GROUP BY `t`.`a` , `t`.`b`"
        " HAVING count(*) > 1)"
    )


def test_whole_rows_are_compared_null_safely() -> None:
    sql = find_positions(PLAIN, None, ("a", "b"))
    assert (
        "`t`.`a` IS NOT DISTINCT FROM `s`.`c0` AND `t`.`b` IS NOT DISTINCT FROM `s`.`c1`"
        in plain(sql)
    )
