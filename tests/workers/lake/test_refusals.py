"""Errors by which a lake table refuses a change."""

from __future__ import annotations

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from workers.lake.refusals import (
    changed_meanwhile,
    check_base,
    duplicate,
    key_not_unique,
    main_was_moved,
)
from workers.lake.table import LakeIdent, Stamp

IDENT = LakeIdent("s", "t")


def at(lsn: int, epoch: str = "e") -> Stamp:
    return Stamp("pg_1", LSN(lsn), epoch, LSN(1), "source")


@pytest.mark.parametrize("found", [at(20), at(30)])
def test_a_branch_at_its_base_is_fine(found: Stamp) -> None:
    check_base(IDENT, found, at(40), LSN(20))
    check_base(IDENT, None, at(40), None)


@pytest.mark.parametrize(
    ("found", "word"),
    [(None, "at no position"), (at(19), "at 0/13 of epoch e"), (at(30, "old"), "of epoch old")],
)
def test_a_branch_that_was_set_back_is_refused(found: Stamp | None, word: str) -> None:
    with pytest.raises(ReplicationError) as error:
        check_base(IDENT, found, at(40), LSN(20))
    assert error.value.code == "55000"
    assert word in error.value.report()


def test_conflicts_are_tried_again() -> None:
    assert changed_meanwhile(IDENT).code == main_was_moved(IDENT, "Moved.").code == "40001"


def test_a_repeated_key_names_its_columns() -> None:
    assert "key (a, b) is not unique" in key_not_unique(IDENT, ["a", "b"], "Two rows.").primary
    assert duplicate(IDENT, ("a",), "Two.").code == duplicate(IDENT, (), "Two.").code == "23505"
