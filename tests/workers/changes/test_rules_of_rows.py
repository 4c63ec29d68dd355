"""Rows are hidden as the rows in the lake are, or not written at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import TableOptions
from tests.workers.apply.test_follow_schema import shape
from workers.changes.cannot_follow import CannotFollow
from workers.changes.masked_columns import told_masks
from workers.changes.remembered_columns import RememberedColumn, RememberedColumns, from_text
from workers.changes.rules_of_rows import check_same_rules, masks_text, under_rules

ENV = "PGSUB_TEST_MASK_KEY"
OPTIONS = TableOptions(
    masks=(("h", "sha256", ""), ("k", "keyed-hash", ENV), ("n", "null", "")), excluded=("x",)
)
NAMES = ("id", "h", "k", "n", "x")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV, "secret")


@pytest.fixture
def before() -> RememberedColumns:
    """What a worker remembers of the columns ``NAMES`` under ``OPTIONS``."""
    found = [
        RememberedColumn(n, name, 23, -1, 23, n if n < 4 else 0)
        for n, name in enumerate(NAMES, start=1)
    ]
    masked = told_masks(OPTIONS)
    return RememberedColumns("e", 1, 5, {1: 5}, (*found[:3],), guarded=(*found[3:],), masked=masked)


def by_name() -> RememberedColumns:
    return from_text(masks_text(OPTIONS, "e") or "")


def refused(before: RememberedColumns, options: TableOptions) -> str:
    with pytest.raises(ReplicationError) as caught:
        check_same_rules("public.a", NAMES, before, options)
    assert caught.value.code == "55000"
    assert not getattr(caught.value, "copies", True)
    return caught.value.primary


@pytest.mark.parametrize("masked", [{}, {"h": "sha256"}, {"h": "sha256", "k": "keyed-hash 00"}])
def test_another_mask(before: RememberedColumns, masked: dict[str, str]) -> None:
    check_same_rules("public.a", NAMES, before, OPTIONS)
    assert "masked with another key" in refused(replace(before, masked=masked), OPTIONS)
    assert masks_text(TableOptions(excluded=("x",)), "e") is None
    alone = by_name()
    check_same_rules("public.a", NAMES, alone, OPTIONS)
    assert "masked with another key" in refused(replace(alone, masked=masked), OPTIONS)


@pytest.mark.parametrize("gone", ["h", "k", "n", "x"])
def test_a_rule_that_is_gone(before: RememberedColumns, gone: str) -> None:
    masks = tuple(each for each in OPTIONS.masks if each[0] != gone)
    less = replace(OPTIONS, masks=masks, excluded=() if gone == "x" else ("x",))
    assert refused(before, less).startswith(f'column "{gone}" of table "public.a" has another rule')
    if gone in "hk":
        assert gone in refused(by_name(), less)
    names = [name for name in NAMES if name != gone]
    check_same_rules("public.a", names, before, less)  # dropped, or not published
    columns = shape("id", "h", "k", "n", "x").columns
    renamed = [replace(each, name="other") if each.name == gone else each for each in columns]
    found = [each for each in renamed if each.name not in less.left_out]
    with pytest.raises(CannotFollow, match=f'Column "other" was hidden as column "{gone}"') as why:
        under_rules(before, found, less)
    assert not why.value.copies


def test_a_rule_that_is_new(before: RememberedColumns) -> None:
    for more in (replace(OPTIONS, excluded=("x", "id")), replace(OPTIONS, excluded=("x", "h"))):
        assert "has another rule" in refused(before, replace(more, masks=OPTIONS.masks[1:]))


def test_a_number_that_was_dropped_is_no_matter(before: RememberedColumns) -> None:
    """Another column has the name by now, and no rule."""
    live = replace(before, columns=before.columns[:1], guarded=())
    check_same_rules("public.a", ["id", "h", "x"], live, TableOptions())
    found = [*shape("id", "h", numbers=(1, 6)).columns]
    assert under_rules(live, found, TableOptions()).masked == {}
    assert under_rules(live, found, OPTIONS).masked == live.masked


def test_another_column_gets_the_name_of_a_mask(before: RememberedColumns) -> None:
    found = [*shape("h", numbers=(1,)).columns]
    with pytest.raises(CannotFollow, match="which the configuration masks") as why:
        under_rules(before, found, OPTIONS)
    assert why.value.copies
