"""``pg_subscription_rel``: the state of every table, and the only table of legal moves.

A table goes ``i`` (init) → ``d`` (data is being copied) → ``w`` (the sync worker waits) → ``c``
(it catches up to the apply worker's position) → ``s`` (synchronised) → ``r`` (ready). ``w`` and
``c`` exist only in the memory of the launcher: two live workers exchange the states, and without
one of the two workers they mean nothing. With permanent sync slots ``f`` (the copy is finished and
durable) stands between ``d`` and ``w``.

A table may be *suspended*, in any state (``on_error: suspend``). The state stays, and the table
takes no change until ``pgsub resume`` has the table copied again: the copy ends the suspension with
``s``.

``TRANSITIONS`` is the state machine. No other code decides whether a move is legal, and
``store_sqlite.CatalogStore.set_rel_state`` is the only writer of ``srsubstate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Final

from catalog.errcodes import InternalError
from catalog.namespace import MESSAGES_TABLE
from catalog.pg_lsn import LSN, InvalidXLogRecPtr


class SubRelState(StrEnum):
    """``srsubstate``."""

    INIT = "i"
    DATASYNC = "d"
    FINISHEDCOPY = "f"
    SYNCWAIT = "w"
    CATCHUP = "c"
    SYNCDONE = "s"
    READY = "r"


SYNCED: Final = (SubRelState.SYNCDONE, SubRelState.READY)
"""The states in which a table's position counts."""


class Setter(Enum):
    """The maker of a move."""

    SUBSCRIPTIONCMDS = "subscriptioncmds"
    TABLESYNC = "tablesync"
    APPLY = "apply"


class Stored(Enum):
    """The place of a state after a move."""

    CATALOG = "catalog"
    MEMORY = "memory"


class SubLsn(Enum):
    """The value of ``srsublsn`` after a move."""

    NULL = "null"
    ORIGIN_STARTPOS = "origin_startpos"  # the end of the copy's snapshot
    MAX_OF_OURS_AND_CURRENT = "max(w.lsn, current_lsn)"  # current_lsn: the decided position
    CURRENT_LSN = "current_lsn"
    TABLE_LSN = "the lake table's"


@dataclass(frozen=True, slots=True)
class Rule:
    """The maker of a move, the place of the new state, and the LSN of the new state."""

    setter: Setter
    stored: Stored
    sublsn: SubLsn


INIT, DATASYNC, FINISHEDCOPY = SubRelState.INIT, SubRelState.DATASYNC, SubRelState.FINISHEDCOPY
SYNCWAIT, CATCHUP = SubRelState.SYNCWAIT, SubRelState.CATCHUP
SYNCDONE, READY = SubRelState.SYNCDONE, SubRelState.READY
CMDS, TABLESYNC, APPLY = Setter.SUBSCRIPTIONCMDS, Setter.TABLESYNC, Setter.APPLY
CATALOG, MEMORY = Stored.CATALOG, Stored.MEMORY
NULL, ORIGIN_STARTPOS = SubLsn.NULL, SubLsn.ORIGIN_STARTPOS
MAX_OF_BOTH, CURRENT_LSN = SubLsn.MAX_OF_OURS_AND_CURRENT, SubLsn.CURRENT_LSN
TABLE_LSN = SubLsn.TABLE_LSN

# fmt: off
#   (from, to)                       set by     stored   srsublsn after the move
TRANSITIONS: Final[dict[tuple[SubRelState | None, SubRelState], Rule]] = {
    (None,         INIT):         Rule(CMDS,      CATALOG, NULL),             # copy_data = true
    (None,         READY):        Rule(CMDS,      CATALOG, NULL),             # copy_data = false
    (None,         SYNCDONE):     Rule(CMDS,      CATALOG, TABLE_LSN),        # pgsub rebuild
    (INIT,         DATASYNC):     Rule(TABLESYNC, CATALOG, NULL),
    (DATASYNC,     DATASYNC):     Rule(TABLESYNC, CATALOG, NULL),             # after a crash: again
    (DATASYNC,     FINISHEDCOPY): Rule(TABLESYNC, CATALOG, NULL),             # permanent sync slot
    (FINISHEDCOPY, DATASYNC):     Rule(TABLESYNC, CATALOG, NULL),             # the slot is unusable
    (FINISHEDCOPY, INIT):         Rule(CMDS,      CATALOG, NULL),             # to be copied again
    (DATASYNC,     SYNCWAIT):     Rule(TABLESYNC, MEMORY,  ORIGIN_STARTPOS),
    (FINISHEDCOPY, SYNCWAIT):     Rule(TABLESYNC, MEMORY,  ORIGIN_STARTPOS),  # permanent sync slot
    (SYNCWAIT,     CATCHUP):      Rule(APPLY,     MEMORY,  MAX_OF_BOTH),
    (CATCHUP,      SYNCDONE):     Rule(TABLESYNC, CATALOG, CURRENT_LSN),
    (SYNCDONE,     READY):        Rule(APPLY,     CATALOG, CURRENT_LSN),
    (SYNCDONE,     INIT):         Rule(CMDS,      CATALOG, NULL),             # to be copied again
    (READY,        INIT):         Rule(CMDS,      CATALOG, NULL),             # to be copied again
}
# fmt: on


KEY_UNSURE: Final = "key unsure"
"""Stands in place of a fingerprint, and equals no fingerprint."""


@dataclass(frozen=True, slots=True)
class SubscriptionRel:
    """A row of ``pg_subscription_rel``. PostgreSQL has no columns after ``srsublsn``.

    ``nspname`` and ``relname`` are the publisher's names, ``lake_schema`` and ``lake_table`` the
    lake's. ``epoch`` is the copy id: the table's LSNs have a meaning under one copy id only.
    ``attempt`` counts synchronisations, ``base_snapshot`` is the snapshot of ``main`` at the start
    of the running attempt. ``floor`` is the copy position: the table takes no transaction up to
    ``floor``. ``lake_lsn`` is the highest LSN published to the table. ``copied`` says that a copy
    under the present copy id brought the rows; ``fingerprint`` describes the publications and
    the key columns at the time of the copy. ``recopy`` says that the next copy replaces the rows; a
    first copy adds rows.
    ``remote_relid`` is the publisher's table that was copied, ``other_relid`` another table that
    has had the name since.
    A change with a part of the key sets ``fingerprint`` to ``KEY_UNSURE`` until the next copy.
    ``suspend_time`` says since when the table is suspended, in microseconds since 1970;
    ``suspend_sqlstate`` and ``suspend_error`` are the error; ``suspend_lsn`` is the end of the
    first transaction that the table misses, None after a failed copy. ``resuming`` says that the
    table is to be copied again, which ends the suspension.
    ``former_names`` are the names that the table had in this subscription, the newest last; the
    configuration may still have one of them (``catalog.table_renames``).
    """

    srsubid: int
    srrelid: int
    srsubstate: SubRelState
    srsublsn: LSN | None
    nspname: str
    relname: str
    lake_schema: str
    lake_table: str
    epoch: str | None = None
    attempt: int = 0
    base_snapshot: int | None = None
    floor: LSN = InvalidXLogRecPtr
    lake_lsn: LSN = InvalidXLogRecPtr
    copied: bool = False
    fingerprint: str | None = None
    remote_relid: int | None = None
    recopy: bool = False
    other_relid: int | None = None
    suspend_time: int | None = None
    suspend_sqlstate: str | None = None
    suspend_error: str | None = None
    suspend_lsn: LSN | None = None
    resuming: bool = False
    former_names: tuple[str, ...] = ()

    @property
    def holds_messages(self) -> bool:
        """Is it the table of logical messages (``messages_to``)? It has no rows to copy."""
        return (self.nspname, self.relname) == MESSAGES_TABLE

    @property
    def suspended(self) -> bool:
        """Does the apply worker drop the table's changes until the next copy is complete?"""
        return self.suspend_time is not None

    @property
    def awaits_resume(self) -> bool:
        """Does the table stay suspended until a user has the table copied again?"""
        return self.suspended and not self.resuming

    @property
    def awaits_sync(self) -> bool:
        """Is a sync worker, or the hand-over by one, still to come? Not without a resume."""
        return self.srsubstate is not SubRelState.READY and not self.awaits_resume

    @property
    def key_unsure(self) -> bool:
        """May the key columns of a change be a part of a key, whatever the publisher says now?"""
        return self.fingerprint == KEY_UNSURE


NOT_SUSPENDED: Final[Mapping[str, Any]] = {
    "suspend_time": None,
    "suspend_sqlstate": None,
    "suspend_error": None,
    "suspend_lsn": None,
    "resuming": False,
}
"""The columns of a table that is not suspended."""


def check_transition(old: SubRelState | None, new: SubRelState, setter: Setter) -> Rule:
    """The rule of a legal move; an illegal move is a bug of the product (XX000)."""
    rule = TRANSITIONS.get((old, new))
    if rule is None or rule.setter is not setter:
        raise _illegal(old, new, setter)
    return rule


def check_stored_transition(stored: SubRelState | None, new: SubRelState, setter: Setter) -> Rule:
    """Check a move as ``check_transition`` does, for a writer that sees only the stored state.

    Between two stored states a table may pass through states in memory: ``d`` → ``s`` is legal,
    because ``d`` → ``w`` → ``c`` are moves in memory and ``c`` → ``s`` is stored.
    """
    for old in _seen_as(stored):
        rule = TRANSITIONS.get((old, new))
        if rule is not None and rule.setter is setter and rule.stored is CATALOG:
            return rule
    raise _illegal(stored, new, setter)


def check_sublsn(rule: Rule, lsn: LSN | None) -> None:
    """Check that ``srsublsn`` is NULL exactly for the states with a NULL rule (XX000)."""
    if (lsn is None) != (rule.sublsn is NULL):
        raise InternalError(
            "wrong srsublsn for a table state", detail=f"The rule says {rule.sublsn.value}."
        )


def _seen_as(stored: SubRelState | None) -> list[SubRelState | None]:
    """The possible states of a table while the catalog has ``stored``."""
    states = [stored]
    for state in states:
        states += [
            new
            for (old, new), rule in TRANSITIONS.items()
            if old == state and rule.stored is MEMORY and new not in states
        ]
    return states


def _illegal(old: SubRelState | None, new: SubRelState, setter: Setter) -> InternalError:
    return InternalError(
        f'illegal table state change from "{old or "none"}" to "{new}" by {setter.value}'
    )
