"""The durable catalog of a data directory: what may be read of it and what may be changed.

Reads return frozen rows; a row is never changed in place.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, Final

from catalog.errcodes import (
    PROGRAM_LIMIT_EXCEEDED,
    DuplicateObject,
    InternalError,
    ReplicationError,
    UndefinedObject,
)
from catalog.lake_maintenance import LakeMaintenance, LakeUpkeep
from catalog.last_error import LastError
from catalog.leaked_slot import LeakedSlot
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import (
    MAX_REPLICATION_ORIGIN,
    ReplicationOrigin,
    origin_name,
)
from catalog.pg_stat_subscription_stats import SubscriptionStats
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import (
    Setter,
    SubRelState,
    SubscriptionRel,
    check_stored_transition,
    check_sublsn,
    check_transition,
)
from catalog.rows import (
    encode_lsn,
    origin_row,
    rel_row,
    rel_values,
    subscription_row,
    subscription_values,
)
from catalog.sqlite_file import CatalogFile

_REL_KEY: Final = frozenset({"srsubid", "srrelid", "srsubstate", "srsublsn"})


class CatalogStore(CatalogFile):
    """pg_subscription, pg_subscription_rel, pg_replication_origin and what the fence needs."""

    def _next_oid(self) -> int:
        oid = self._one("next_oid", _integer)
        if oid is None:
            raise InternalError("the catalog has lost its oid counter")
        return oid

    # pg_subscription

    def subscriptions(self) -> list[Subscription]:
        """All subscriptions by oid, also those being created or dropped."""
        return self._all("subscriptions", subscription_row)

    def subscription(self, subid: int) -> Subscription | None:
        """One subscription by oid."""
        return self._one("subscription", subscription_row, oid=subid)

    def subscription_by_name(self, name: str) -> Subscription | None:
        """One subscription by name."""
        return self._one("subscription_by_name", subscription_row, subname=name)

    def insert_subscription(self, sub: Subscription) -> Subscription:
        """Store a new subscription under an oid never used before; 42710 if the name is taken."""
        with self.transaction():
            if self.subscription_by_name(sub.subname) is not None:
                raise DuplicateObject(f'subscription "{sub.subname}" already exists')
            row = dataclasses.replace(sub, oid=self._next_oid())
            self._write("insert_subscription", subscription_values(row))
        return row

    def update_subscription(self, subid: int, **columns: Any) -> Subscription:
        """Change some columns; the new row. 42704 if the subscription is gone.

        With another server, timeline or database the origins of its tables go back to 0/0: what a
        finished copy (``f``) stands at is a position of the old one.
        """
        with self.transaction():
            old = self._must_have(subid)
            row = dataclasses.replace(old, **columns)
            if row.oid != subid:
                raise InternalError("a subscription's oid cannot change")
            self._write("update_subscription", subscription_values(row))
            if not old.same_world(row):
                self.forget_sync_progress(subid)
        return row

    def clear_skip_lsn(self, subid: int, skiplsn: LSN) -> bool:
        """``subskiplsn`` was acted on; False if it is not this one any more, which then stays."""
        lsns = {"subskiplsn": encode_lsn(skiplsn), "none": encode_lsn(LSN(0))}
        return bool(self._write("clear_skip_lsn", {"oid": subid, **lsns}))

    def delete_subscription(self, subid: int) -> None:
        """Forget a subscription, its tables and what it had in flight; missing is fine."""
        with self.transaction():
            self._write("insert_former_owner", {"oid": subid})
            self._write("delete_subscription", {"oid": subid})

    def former_owners(self) -> set[str]:
        """The uuids of dropped subscriptions; a lake table one of them owned may be adopted."""
        return set(self._all("former_owners", lambda row: str(row[0])))

    def next_generation(self, subid: int) -> int:
        """A worker generation of this subscription that was never handed out before."""
        with self.transaction():
            generation = self._one("next_generation", _integer, oid=subid)
        if generation is None:
            raise _no_subscription(subid)
        return generation

    def _must_have(self, subid: int) -> Subscription:
        row = self.subscription(subid)
        if row is None:
            raise _no_subscription(subid)
        return row

    # pg_subscription_rel

    def rels(self, subid: int) -> list[SubscriptionRel]:
        """The tables of a subscription by relid."""
        return self._all("rels", rel_row, srsubid=subid)

    def rel(self, subid: int, relid: int) -> SubscriptionRel | None:
        """One table of a subscription."""
        return self._one("rel", rel_row, srsubid=subid, srrelid=relid)

    def insert_rel(self, rel: SubscriptionRel) -> SubscriptionRel:
        """Add a table in state ``i`` or ``r``, or ``s`` if the lake says how far it is.

        ``srrelid`` stands for the lake table: subscriptions that share one see the same oid, and a
        table that is added again gets its old one. Only where one subscription maps several
        publisher tables to one lake table do these differ.
        """
        check_sublsn(check_transition(None, rel.srsubstate, Setter.SUBSCRIPTIONCMDS), rel.srsublsn)
        ident = {"lake_schema": rel.lake_schema, "lake_table": rel.lake_table}
        with self.transaction():
            relid = self._one("lake_relation", _integer, srsubid=rel.srsubid, **ident)
            if relid is None:
                relid = self._next_oid()
                self._write("insert_lake_relation", {"oid": relid, **ident})
            row = dataclasses.replace(rel, srrelid=relid)
            self._write("insert_rel", rel_values(row))
        return row

    def set_rel_state(
        self, subid: int, relid: int, state: SubRelState, lsn: LSN | None, setter: Setter
    ) -> SubscriptionRel:
        """Store a move of the state machine; the new row.

        42704 if the table left the subscription (a worker never brings a row back), XX000 if
        ``TRANSITIONS`` knows no such move from what is stored.
        """
        with self.transaction():
            row = self._must_have_rel(subid, relid)
            check_sublsn(check_stored_transition(row.srsubstate, state, setter), lsn)
            row = dataclasses.replace(row, srsubstate=state, srsublsn=lsn)
            self._write("set_rel_state", rel_values(row))
        return row

    def update_rel(self, subid: int, relid: int, **ours: Any) -> SubscriptionRel:
        """Change columns of ours, never PostgreSQL's four; the new row. 42704 if it is gone."""
        if not _REL_KEY.isdisjoint(ours):
            raise InternalError("srsubstate and srsublsn change through set_rel_state only")
        with self.transaction():
            row = dataclasses.replace(self._must_have_rel(subid, relid), **ours)
            self._write("update_rel", rel_values(row))
        return row

    def delete_rel(self, subid: int, relid: int) -> None:
        """Forget a table of a subscription; missing is fine."""
        with self.transaction():
            self._write("delete_rel", {"srsubid": subid, "srrelid": relid})
            self.forget_last_error(subid, relid)

    def _must_have_rel(self, subid: int, relid: int) -> SubscriptionRel:
        row = self.rel(subid, relid)
        if row is None:
            raise UndefinedObject(
                f"table with OID {relid} is not part of the subscription with OID {subid}"
            )
        return row

    # pg_replication_origin

    def origins(self) -> list[ReplicationOrigin]:
        """All origins by id."""
        return self._all("origins", origin_row)

    def origin_by_name(self, name: str) -> ReplicationOrigin | None:
        """One origin."""
        return self._one("origin_by_name", origin_row, roname=name)

    def origin_lsn(self, name: str) -> LSN:
        """How far an origin is; 0/0 if there is none."""
        origin = self.origin_by_name(name)
        return LSN(0) if origin is None else origin.remote_lsn

    def origin_create(self, name: str) -> int:
        """Make an origin under the lowest free id; 42710 if the name is taken."""
        with self.transaction():
            if self.origin_by_name(name) is not None:
                raise DuplicateObject(f'replication origin "{name}" already exists')
            roident = self._one("free_roident", _integer) or 1
            if roident > MAX_REPLICATION_ORIGIN:
                raise ReplicationError(
                    "could not find free replication origin ID", sqlstate=PROGRAM_LIMIT_EXCEEDED
                )
            values = {"roident": roident, "roname": name}
            self._write(
                "insert_origin", {**values, "remote_lsn": encode_lsn(LSN(0)), "local_lsn": None}
            )
        return roident

    def origin_advance(
        self, name: str, remote_lsn: LSN, local_lsn: str, *, go_backward: bool = False
    ) -> None:
        """Move an origin on; never back unless ``go_backward``. 42704 if it is missing."""
        with self.transaction():
            row = self.origin_by_name(name)
            if row is None:
                raise UndefinedObject(f'replication origin "{name}" does not exist')
            if remote_lsn < row.remote_lsn and not go_backward:
                return
            self._write(
                "update_origin",
                {"roname": name, "remote_lsn": encode_lsn(remote_lsn), "local_lsn": local_lsn},
            )

    def forget_sync_progress(self, subid: int) -> None:
        """What finished copies of the subscription stand at is another server's: 0/0."""
        with self.transaction():
            for rel in self.rels(subid):
                name = origin_name(subid, rel.srrelid)
                if self.origin_by_name(name) is not None:
                    self.origin_advance(name, LSN(0), "another server", go_backward=True)

    def origin_drop(self, name: str, missing_ok: bool = True) -> None:
        """Drop an origin; a missing one is 42704 unless ``missing_ok``."""
        if not self._write("delete_origin", {"roname": name}) and not missing_ok:
            raise UndefinedObject(f'replication origin "{name}" does not exist')

    # What a successor has to settle

    def put_in_flight(self, subid: int, relids: Iterable[int], lsn: LSN) -> None:
        """Write down which tables are about to be published up to ``lsn``."""
        with self.transaction():
            for relid in relids:
                self._write(
                    "put_in_flight", {"subid": subid, "relid": relid, "lsn": encode_lsn(lsn)}
                )

    def in_flight(self, subid: int) -> list[tuple[int, LSN]]:
        """(relid, lsn) of the tables whose publication has no known outcome."""
        return self._all("in_flight", lambda row: (row[0], LSN(int(row[1], 16))), subid=subid)

    def clear_in_flight(self, subid: int, relids: Iterable[int]) -> None:
        """The outcome of these tables is known."""
        with self.transaction():
            for relid in relids:
                self._write("clear_in_flight", {"subid": subid, "relid": relid})

    def put_spark_session(
        self, subid: int, relid: int, generation: int, user_id: str, session_id: str
    ) -> None:
        """Remember a Spark session of a worker, before its first use."""
        self._write(
            "put_spark_session",
            {
                "subid": subid,
                "relid": relid,
                "generation": generation,
                "user_id": user_id,
                "session_id": session_id,
            },
        )

    def spark_sessions(self, subid: int, relid: int) -> list[tuple[str, str]]:
        """(user_id, session_id) of every session a worker in this place may have left open."""
        return self._all("spark_sessions", _pair, subid=subid, relid=relid)

    def all_spark_sessions(self) -> list[tuple[int, int, int, str, str]]:
        """(subid, relid, generation, user_id, session_id), also of dropped subscriptions."""
        return self._all("all_spark_sessions", lambda r: (r[0], r[1], r[2], r[3], r[4]))

    def forget_spark_sessions(self, subid: int, relid: int, generation_max: int) -> None:
        """These sessions are closed for good."""
        self._write(
            "forget_spark_sessions",
            {"subid": subid, "relid": relid, "generation_max": generation_max},
        )

    def hand_over_spark_session(self, user_id: str, session_id: str, since: float) -> None:
        """A worker's session is the next one's to take; ``since`` is Unix time in seconds."""
        ids = {"user_id": user_id, "session_id": session_id}
        with self.transaction():
            self._write("put_idle_spark_session", {**ids, "since": since})
            self.forget_spark_session(**ids)

    def take_spark_session(
        self,
        subid: int,
        relid: int,
        generation: int,
        *,
        since: float = 0.0,
        before: float = math.inf,
    ) -> tuple[str, str] | None:
        """The (user_id, session_id) handed over last in that time: now this worker's.

        At any time a session is in one list: of those nobody uses, or of a worker's, whose
        successor will close it.
        """
        with self.transaction():
            taken = self._one("idle_spark_session", _pair, since=since, before=before)
            if taken is not None:
                self.put_spark_session(subid, relid, generation, *taken)
                ids = {"user_id": taken[0], "session_id": taken[1]}
                self._write("forget_idle_spark_session", ids)
            return taken

    def forget_idle_spark_sessions(self) -> None:
        """The server that knew them is gone."""
        self._write("forget_idle_spark_sessions", {})

    def forget_spark_session(self, user_id: str, session_id: str) -> None:
        """This session is closed for good."""
        self._write("forget_spark_session", {"user_id": user_id, "session_id": session_id})

    # Errors, leaked slots and settings

    def put_last_error(self, error: LastError) -> None:
        """Remember what ended a worker, in the place of what ended the one before."""
        self._write("put_last_error", dataclasses.asdict(error))

    def last_error(self, subid: int, relid: int) -> LastError | None:
        """What ended the last worker in this place, unless it went well since."""
        found = (error for error in self.last_errors() if error.subid == subid)
        return next((error for error in found if error.relid == relid), None)

    def last_errors(self) -> list[LastError]:
        """What workers ended with whose successors have not got on with their work."""
        return self._all("last_errors", lambda row: LastError(**dict(row)))

    def forget_last_error(self, subid: int, relid: int) -> None:
        """It goes well again."""
        self._write("forget_last_error", {"subid": subid, "relid": relid})

    def subscription_stats(self, subid: int) -> SubscriptionStats:
        """What was counted of a subscription; nothing of one that is not there."""
        found = self._one(
            "subscription_stats", lambda row: SubscriptionStats(**dict(row)), subid=subid
        )
        return found or SubscriptionStats(subid)

    def count_for_stats(self, subid: int, **counters: int) -> None:
        """Add to counters of a subscription; nothing is counted of one that is gone."""
        self._write(
            "add_subscription_stats", dataclasses.asdict(SubscriptionStats(subid, **counters))
        )

    def reset_subscription_stats(self, subid: int, stats_reset: int) -> None:
        """``pg_stat_reset_subscription_stats``: count from zero again, since that moment."""
        self._write("reset_subscription_stats", {"subid": subid, "stats_reset": stats_reset})

    def lake_maintenance(self, subid: int) -> list[LakeMaintenance]:
        """What was done about the orphan files of a subscription's tables, by relid."""
        return self._all("lake_maintenance", lambda row: LakeMaintenance(**dict(row)), subid=subid)

    def put_lake_maintenance(self, done: LakeMaintenance) -> None:
        """Store that of one table; nothing is stored of one that left its subscription."""
        self._write("put_lake_maintenance", dataclasses.asdict(done))

    def lake_upkeep(self, subid: int) -> list[LakeUpkeep]:
        """What was done to keep a subscription's lake tables small to read, by relid and kind."""
        return self._all("lake_upkeep", lambda row: LakeUpkeep(**dict(row)), subid=subid)

    def add_lake_upkeep(self, done: LakeUpkeep) -> None:
        """Add what was done to one table, or failed; nothing of one that left its subscription."""
        self._write("add_lake_upkeep", dataclasses.asdict(done))

    def forget_upkeep_errors(self, subid: int, relid: int) -> None:
        """What failed was of rows that a table does not hold any more."""
        self._write("forget_upkeep_errors", {"subid": subid, "relid": relid})

    def put_leaked_slot(self, slot: LeakedSlot) -> None:
        """Remember a slot that stays on the publisher until somebody drops it."""
        self._write("put_leaked_slot", dataclasses.asdict(slot))

    def leaked_slots(self) -> list[LeakedSlot]:
        """Slots that stay on a publisher."""
        return self._all("leaked_slots", lambda row: LeakedSlot(**dict(row)))

    def forget_leaked_slot(self, slot: LeakedSlot) -> None:
        """This one is gone, or is used again."""
        self._write("forget_leaked_slot", dataclasses.asdict(slot))

    def forget_leaked_slot_of_server(self, slot: LeakedSlot) -> None:
        """The same, however the server was reached when it was left there."""
        self._write("forget_leaked_slot_of_server", dataclasses.asdict(slot))

    def settings(self) -> dict[str, Any]:
        """What ``put_settings`` stored last; empty before."""
        value = self._one("settings", lambda row: json.loads(row[0]))
        return dict(value) if value else {}

    def put_settings(self, value: Mapping[str, Any]) -> None:
        """Store what the configuration said outside its subscriptions."""
        self._write("put_settings", {"value": json.dumps(value, sort_keys=True)})


def _integer(row: sqlite3.Row) -> int:
    return int(row[0])


def _pair(row: sqlite3.Row) -> tuple[str, str]:
    return row[0], row[1]


def _no_subscription(subid: int) -> UndefinedObject:
    return UndefinedObject(f"subscription with OID {subid} does not exist")
