"""Can a lake table's position be trusted? If not, say how to go on."""

from __future__ import annotations

import shlex

from catalog.errcodes import ObjectNotInPrerequisiteState
from catalog.namespace import qualified_name
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from workers.lake.table import LakeTable, Stamp


def recopy_command(subname: str, rel: SubscriptionRel) -> str:
    """The command to copy a table again."""
    table = shlex.quote(qualified_name(rel.nspname, rel.relname))
    return f"pgsub refresh {shlex.quote(subname)} --recopy {table}"


def check_position(rel: SubscriptionRel, lake: LakeTable, subname: str, source: str = "") -> Stamp:
    """The table's position in the lake, or the source's in a shared table, if it can be trusted.

    Raises 55000 with two remedies if not: copy the table again, or accept the gap. No gap can be
    accepted in a shared table, nor in a table still being synchronised.
    """
    remedy = f"Copy the table again with {recopy_command(subname, rel)}"
    must_recopy = rel.srsubstate is SubRelState.FINISHEDCOPY or source
    accept = f", or go on without what is missing with pgsub accept-gap {shlex.quote(subname)}"
    remedy += "." if must_recopy else f"{accept}."
    stamp = lake.position(source)
    if stamp is None:
        raise ObjectNotInPrerequisiteState(
            f'lake table "{lake.ident}" carries no replication position',
            detail="No snapshot of main says up to which LSN it is complete; "
            f"{rel.lake_lsn} was published to it.",
            hint=remedy,
        )
    if stamp.epoch != rel.epoch:
        raise ObjectNotInPrerequisiteState(
            f'lake table "{lake.ident}" belongs to another copy',
            detail=f"Its epoch is {stamp.epoch}, this subscription's is {rel.epoch}; "
            f"{rel.lake_lsn} was published to it.",
            hint=remedy,
        )
    if rel.lake_lsn != InvalidXLogRecPtr and stamp.lsn < rel.lake_lsn:
        raise ObjectNotInPrerequisiteState(
            f'lake table "{lake.ident}" is behind what was published to it',
            detail=f"It stands at {stamp.lsn}; {rel.lake_lsn} was published. It was set back: what "
            f"was committed from {stamp.lsn} to {rel.lake_lsn} is not in it.",
            hint=remedy,
        )
    return stamp


def stamp_at(rel: SubscriptionRel, lsn: LSN, source: str) -> Stamp:
    """The position ``lsn`` of the table's present copy, under the subscription's origin."""
    return Stamp(origin_name(rel.srsubid), lsn, rel.epoch or "", rel.floor, source)
