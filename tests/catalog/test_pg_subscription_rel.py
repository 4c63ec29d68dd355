import dataclasses
from itertools import product

import pytest

from catalog.errcodes import InternalError
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import (
    NOT_SUSPENDED,
    TRANSITIONS,
    Rule,
    Setter,
    Stored,
    SubLsn,
    SubRelState,
    SubscriptionRel,
    check_stored_transition,
    check_sublsn,
    check_transition,
)

OLD = (None, *SubRelState)
STORED = (None, *(state for state in SubRelState if state not in "wc"))


@pytest.mark.parametrize(("old", "new", "setter"), [*product(OLD, SubRelState, Setter)])
def test_every_move(old: SubRelState | None, new: SubRelState, setter: Setter) -> None:
    rule = TRANSITIONS.get((old, new))
    if rule is not None and rule.setter is setter:
        assert check_transition(old, new, setter) is rule
    else:
        with pytest.raises(InternalError):
            check_transition(old, new, setter)


LEGAL_ON_DISK = {
    (None, "i", Setter.SUBSCRIPTIONCMDS),
    (None, "r", Setter.SUBSCRIPTIONCMDS),
    (None, "s", Setter.SUBSCRIPTIONCMDS),
    ("i", "d", Setter.TABLESYNC),
    ("d", "d", Setter.TABLESYNC),
    ("d", "f", Setter.TABLESYNC),
    ("d", "s", Setter.TABLESYNC),
    ("f", "s", Setter.TABLESYNC),
    ("f", "d", Setter.TABLESYNC),
    ("f", "i", Setter.SUBSCRIPTIONCMDS),
    ("s", "r", Setter.APPLY),
    ("s", "i", Setter.SUBSCRIPTIONCMDS),
    ("r", "i", Setter.SUBSCRIPTIONCMDS),
}


@pytest.mark.parametrize(("old", "new", "setter"), [*product(STORED, SubRelState, Setter)])
def test_every_move_as_the_catalog_sees_it(
    old: SubRelState | None, new: SubRelState, setter: Setter
) -> None:
    if (old, new, setter) in LEGAL_ON_DISK:
        assert check_stored_transition(old, new, setter).stored is Stored.CATALOG
    else:
        with pytest.raises(InternalError):
            check_stored_transition(old, new, setter)


@pytest.mark.parametrize("sublsn", [*SubLsn])
def test_sublsn_is_null_where_the_rule_says_so(sublsn: SubLsn) -> None:
    rule = Rule(Setter.APPLY, Stored.CATALOG, sublsn)
    legal, illegal = (None, LSN(1)) if sublsn is SubLsn.NULL else (LSN(1), None)
    check_sublsn(rule, legal)
    with pytest.raises(InternalError):
        check_sublsn(rule, illegal)


def test_w_and_c_are_never_stored() -> None:
    memory = {new for (_, new), rule in TRANSITIONS.items() if rule.stored is Stored.MEMORY}
    assert memory == {SubRelState.SYNCWAIT, SubRelState.CATCHUP}


def test_a_suspended_table_awaits_a_sync_worker_only_after_a_resume() -> None:
    rel = SubscriptionRel(1, 2, SubRelState.DATASYNC, None, "s", "a", "s", "a")
    held = dataclasses.replace(rel, suspend_time=1)
    resumed = dataclasses.replace(held, resuming=True)
    assert [each.awaits_sync for each in (rel, held, resumed)] == [True, False, True]
    assert [each.suspended for each in (rel, held, resumed)] == [False, True, True]
    assert dataclasses.replace(resumed, **NOT_SUSPENDED) == rel
