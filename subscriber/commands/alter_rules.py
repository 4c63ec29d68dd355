"""The rules of ALTER SUBSCRIPTION: ``AlterSubscription``'s checks, in order and words. Pure.

A check reads the subscription's row and the requested change. The modules ``alter`` and ``refresh``
check before a change, with the row as read in the transaction that stores the change.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from catalog.errcodes import (
    INVALID_OBJECT_DEFINITION,
    DuplicateObject,
    InvalidParameterValue,
    ObjectNotInPrerequisiteState,
    ReplicationError,
    SyntaxErrorOrAccess,
    UndefinedObject,
)
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_subscription import OWNER, Subscription, TwoPhaseState, check_publications
from config.statements import PublicationAction

_COLUMNS: Final = {
    "slot_name": "subslotname",
    "synchronous_commit": "subsynccommit",
    "binary": "subbinary",
    "streaming": "substream",
    "two_phase": "subtwophasestate",
    "disable_on_error": "subdisableonerr",
    "password_required": "subpasswordrequired",
    "run_as_owner": "subrunasowner",
    "failover": "subfailover",
    "origin": "suborigin",
}
"""The options of SET (…), with the columns of the row."""

_DROP_CREATE: Final = "or use DROP/CREATE SUBSCRIPTION"


@dataclass(frozen=True, slots=True)
class OptionsChange:
    """The effect of SET (…): columns of the row, and properties of the slot (None: unchanged).

    ``two_phase`` is never true: the worker turns the property on once every table is ready.
    ``needs_rest`` says that no worker may run.
    """

    columns: Mapping[str, Any]
    failover: bool | None = None
    two_phase: bool | None = None
    needs_rest: bool = False

    @property
    def concerns_slot(self) -> bool:
        """Must the slot on the publisher be altered?"""
        return self.failover is not None or self.two_phase is not None


def options_change(
    sub: Subscription,
    options: Mapping[str, Any],
    *,
    running: Callable[[], bool],
    prepared: Callable[[], bool],
) -> OptionsChange:
    """``ALTER_SUBSCRIPTION_OPTIONS``. ``running``: does a worker of the subscription still run?

    ``prepared``: has the subscription prepared transactions? ``options`` are parsed values:
    ``slot_name`` None is NONE.
    """
    for name in options:
        if name not in _COLUMNS:
            raise SyntaxErrorOrAccess(f'unrecognized subscription parameter: "{name}"')
    columns = {_COLUMNS[name]: value for name, value in options.items()}
    if "slot_name" in options and options["slot_name"] is None and sub.subenabled:
        raise ObjectNotInPrerequisiteState(
            "cannot set slot_name = NONE for enabled subscription",
            hint=f"Run pgsub disable {shlex.quote(sub.subname)} first.",
        )
    failover, two_phase = options.get("failover"), options.get("two_phase")
    if two_phase is not None:
        _check_two_phase(sub, options, running, prepared)
        state = TwoPhaseState.PENDING if two_phase else TwoPhaseState.DISABLED
        columns["subtwophasestate"] = state
    if failover is not None:
        _check_slot_option(sub, "failover", slot_changes=True)
    needs_rest = (failover, two_phase) != (None, None)
    return OptionsChange(columns, failover, False if two_phase is False else None, needs_rest)


def _check_two_phase(
    sub: Subscription,
    options: Mapping[str, Any],
    running: Callable[[], bool],
    prepared: Callable[[], bool],
) -> None:
    turned_off = not options["two_phase"]
    _check_slot_option(sub, "two_phase", slot_changes=turned_off)
    if turned_off and "slot_name" in options:
        raise SyntaxErrorOrAccess('"slot_name" and "two_phase" cannot be altered at the same time')
    if running():
        raise ObjectNotInPrerequisiteState(
            'cannot alter "two_phase" when logical replication worker is still running',
            hint="Try again after some time.",
        )
    if turned_off and sub.subtwophasestate is not TwoPhaseState.DISABLED and prepared():
        raise ObjectNotInPrerequisiteState(
            'cannot disable "two_phase" when prepared transactions exist',
            hint="Resolve these transactions and try again.",
        )


def _check_slot_option(sub: Subscription, option: str, *, slot_changes: bool) -> None:
    """``CheckAlterSubOption``."""
    if sub.subenabled:
        raise ObjectNotInPrerequisiteState(
            f'cannot set option "{option}" for enabled subscription',
            hint=f"Run pgsub disable {shlex.quote(sub.subname)} first.",
        )
    if slot_changes and sub.subslotname is None:
        raise ObjectNotInPrerequisiteState(
            f'cannot set option "{option}" for a subscription that does not have a slot name'
        )


def merge_publications(
    sub: Subscription, action: PublicationAction, named: Sequence[str]
) -> tuple[str, ...]:
    """The list after SET, ADD or DROP PUBLICATION; the order is kept."""
    check_publications(named)
    if action == "set":
        return tuple(named)
    merged = list(sub.subpublications)
    for name in named:
        if action == "add":
            if name in merged:
                raise DuplicateObject(
                    f'publication "{name}" is already in subscription "{sub.subname}"'
                )
            merged.append(name)
        elif name not in merged:
            raise ReplicationError(
                f'publication "{name}" is not in subscription "{sub.subname}"',
                sqlstate=INVALID_OBJECT_DEFINITION,
            )
        else:
            merged.remove(name)
    if not merged:
        raise ReplicationError(
            "cannot drop all the publications from a subscription",
            sqlstate=INVALID_OBJECT_DEFINITION,
        )
    return tuple(merged)


def check_refresh(sub: Subscription, action: PublicationAction | None, *, copy_data: bool) -> None:
    """Check that a refresh is allowed, by SET, ADD or DROP PUBLICATION, or (None) by REFRESH."""
    refused = sub.subtwophasestate is TwoPhaseState.ENABLED and copy_data
    if action is None:
        if not sub.subenabled:
            raise ObjectNotInPrerequisiteState(
                "ALTER SUBSCRIPTION ... REFRESH is not allowed for disabled subscriptions",
                hint=f"Run pgsub enable {shlex.quote(sub.subname)} first.",
            )
        if refused:
            raise SyntaxErrorOrAccess(
                "ALTER SUBSCRIPTION ... REFRESH with copy_data is not allowed when two_phase is "
                "enabled",
                hint=f"Use ALTER SUBSCRIPTION ... REFRESH with copy_data = false, {_DROP_CREATE}.",
            )
        return
    command = f"ALTER SUBSCRIPTION ... {action.upper()} PUBLICATION"
    if not sub.subenabled:
        instead = f"{command} ... WITH (refresh = false)"
        raise ObjectNotInPrerequisiteState(
            "ALTER SUBSCRIPTION with refresh is not allowed for disabled subscriptions",
            hint=f"Use {instead}." if action == "set" else f"Use {instead} instead.",
        )
    if refused:
        raise ObjectNotInPrerequisiteState(
            "ALTER SUBSCRIPTION with refresh and copy_data is not allowed when two_phase is "
            "enabled",
            hint=f"Use {command} with refresh = false, or with copy_data = false, {_DROP_CREATE}.",
        )


def check_skip(lsn: LSN | None, origin: LSN) -> LSN:
    """The new ``subskiplsn``; None is NONE. ``origin`` is the subscription's position."""
    if lsn is None:
        return InvalidXLogRecPtr
    if lsn == InvalidXLogRecPtr:
        raise InvalidParameterValue(f"invalid WAL location (LSN): {lsn}")
    if origin != InvalidXLogRecPtr and lsn < origin:
        raise InvalidParameterValue(
            f"skip WAL location (LSN {lsn}) must be greater than origin LSN {origin}"
        )
    return lsn


def check_enable(sub: Subscription) -> None:
    """ENABLE needs a slot."""
    if sub.subslotname is None:
        raise ObjectNotInPrerequisiteState(
            "cannot enable subscription that does not have a slot name"
        )


def check_role(role: str | None) -> None:
    """OWNER TO: the lake has a single role; None is CURRENT_USER."""
    if role not in (None, OWNER):
        raise UndefinedObject(f'role "{role}" does not exist')
