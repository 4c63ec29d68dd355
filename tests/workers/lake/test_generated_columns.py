"""What a generation expression may say, and what it is over other names than the table's."""

from __future__ import annotations

import pytest

from catalog.errcodes import ReplicationError
from workers.lake.generated_columns import check_uses, read_generated
from workers.lake.sql.merge import TARGET, merge_by_key, merge_by_position
from workers.lake.table import LakeIdent

IDENT = LakeIdent("s", "t")


def over(text: str) -> str:
    [expression] = read_generated((("g", text),))
    return expression.over(lambda name: f"<{name}>")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a * 22", "(<a> * 22)"),
        ("`a b`+`c``d`", "(<a b>+<c`d>)"),
        ("date_sub(d, 3)", "(date_sub(<d>, 3))"),
        ("CAST(a AS DECIMAL(10, 2))", "(CAST(<a> AS DECIMAL(10, 2)))"),
        ("extract(year FROM d)", "(extract(year FROM <d>))"),
        ("CASE WHEN a > 1 THEN 'a' ELSE b END", "(CASE WHEN <a> > 1 THEN 'a' ELSE <b> END)"),
        ("transform(tags, a -> upper(a) || b)", "(transform(<tags>, a -> upper(a) || <b>))"),
        ("'größe 🙂: ' || `größe 🙂`", "('größe 🙂: ' || <größe 🙂>)"),
        ("now + rand", "(<now> + <rand>)"),
        ("`current_date`", "(<current_date>)"),
        ("'now()'", "('now()')"),
    ],
)
def test_only_where_a_column_is_named_something_else_stands(text: str, said: str) -> None:
    assert over(text) == said


@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        ("", "42601", '"g"'),
        ("a +", "42601", '"g"'),
        ("a, b", "42601", '"g"'),
        ("a; b", "42601", '"g"'),
        ("a AS b", "42601", '"g"'),
        ("a -- b", "42601", '"g"'),
        ("a /* b */", "42601", '"g"'),
        ("'a", "42601", '"g"'),
        ("DROP TABLE a", "42601", '"g"'),
        ("(SELECT 1)", "0A000", "subquery"),
        ("a IN (SELECT 1)", "0A000", "subquery"),
        ("count(*)", "42803", "aggregate"),
        ("max(a)", "42803", "aggregate"),
        ("sum(a) OVER ()", "42P20", "window"),
        ("explode(a)", "0A000", "set-returning"),
        ("*", "0A000", "whole-row"),
        ("a.b", "0A000", "qualified"),
        ("a + Rand()", "42P17", "immutable"),
        ("current_timestamp", "42P17", "immutable"),
        ("CURRENT_DATE()", "42P17", "immutable"),
        ("now()", "42P17", "immutable"),
        ("reflect('java.lang.System', 'getenv')", "42P17", "immutable"),
    ],
)
def test_what_it_may_not_say(text: str, code: str, word: str) -> None:
    with pytest.raises(ReplicationError) as refused:
        read_generated((("g", text),))
    assert refused.value.code == code
    assert word in refused.value.primary
    assert '"g"' in refused.value.report()


def test_a_generated_column_uses_none_that_is() -> None:
    with pytest.raises(ReplicationError) as refused:
        read_generated((("g", "a + 1"), ("h", "g + 1")))
    assert refused.value.code == "42P17"
    assert 'cannot use generated column "g"' in refused.value.primary


def test_it_uses_columns_that_there_are() -> None:
    check_uses((("g", "a + b"),), ["a", "b"], IDENT)
    with pytest.raises(ReplicationError) as refused:
        check_uses((("g", "a + B"),), ["a", "b"], IDENT)
    assert refused.value.code == "42703"
    assert '"B"' in refused.value.primary


def test_a_merge_computes_it_over_the_row_as_it_will_be() -> None:
    sql = merge_by_key(
        IDENT,
        None,
        columns=("id", "v", "big"),
        key=("id",),
        unchanged=("big",),
        generated=(("g", "concat(v, big, `own`)"),),
    )
    assert sql.replace(TARGET, "t").endswith(
        "`t`.`g` = (concat(`s`.`c1`, CASE WHEN `s`.`m2` THEN `t`.`big` ELSE `s`.`c2` END, "
        "`t`.`own`))"
    )


def test_rows_that_only_go_have_nothing_computed() -> None:
    generated = (("g", "id * 2"),)
    sql = merge_by_key(
        IDENT, None, columns=("id",), key=("id",), updates=False, generated=generated
    )
    assert "`g`" not in sql


def test_a_merge_by_position_is_given_what_was_computed() -> None:
    sql = merge_by_position(
        IDENT, None, columns=("id",), deletes=False, updates=True, generated=("g",)
    )
    assert sql.replace(TARGET, "t").endswith("`t`.`id` = `s`.`c0`, `t`.`g` = `s`.`g0`")
