"""The durable catalog of a data directory: all reads and all changes.

Reads return frozen rows; a row is never changed in place.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, Final

from catalog.changed_text import ChangedText
from catalog.errcodes import (
    PROGRAM_LIMIT_EXCEEDED,
    DuplicateObject,
    InternalError,
    ReplicationError,
    UndefinedObject,
)
from catalog.expired_files import ExpiredFileLists
from catalog.lake_maintenance import LakeMaintenance, LakeUpkeep, LakeWriter
from catalog.lake_names import LakeNames
from catalog.last_error import LastErrors
from catalog.leaked_branch import LeakedBranches
from catalog.leaked_slot import LeakedSlot
from catalog.pg_lsn import LSN, MAX_LSN
from catalog.pg_replication_origin import (
    MAX_REPLICATION_ORIGIN,
    ReplicationOrigin,
    origin_name,
)
from catalog.pg_stat_subscription_stats import StatisticsFile
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
from catalog.schema_changes import SchemaChanges
from catalog.table_renames import TableRenames
from catalog.transaction_at_fault import TransactionsAtFault

_REL_KEY: Final = frozenset({"srsubid", "srrelid", "srsubstate", "srsublsn"})


class CatalogStore(
    ChangedText,
    ExpiredFileLists,
    LakeNames,
    LastErrors,
    LeakedBranches,
    SchemaChanges,
    StatisticsFile,
    TableRenames,
    TransactionsAtFault,
):
    """pg_subscription, pg_subscription_rel, pg_replication_origin and the rows for the fence."""

    def _next_oid(self) -> int:
        oid = self._one("next_oid", _integer)
        if oid is None:
            raise InternalError("the catalog has lost its oid counter")
        return oid

    # pg_subscription

    def subscriptions(self) -> list[Subscription]:
        """All subscriptions by oid, in creation and in removal too."""
        return self._all("subscriptions", subscription_row)

    def subscription(self, subid: int) -> Subscription | None:
        """One subscription by oid."""
        return self._one("subscription", subscription_row, oid=subid)

    def subscription_by_name(self, name: str) -> Subscription | None:
        """One subscription by name."""
        return self._one("subscription_by_name", subscription_row, subname=name)

    def insert_subscription(self, sub: Subscription) -> Subscription:
        """Store a new subscription under a new oid; 42710 if the name exists."""
        with self.transaction():
            if self.subscription_by_name(sub.subname) is not None:
                raise DuplicateObject(f'subscription "{sub.subname}" already exists')
            row = dataclasses.replace(sub, oid=self._next_oid())
            self._write("insert_subscription", subscription_values(row))
        return row

    def update_subscription(self, subid: int, **columns: Any) -> Subscription:
        """Change some columns; the new row. 42704 if the subscription is gone.

        With a new server, timeline or database the origins of the tables go back to 0/0: the
        position of a finished copy (``f``) belongs to the old publisher.
        """
        with self.transaction():
            old = self._must_have(subid)
            row = dataclasses.replace(old, **columns)
            if row.oid != subid:
                raise InternalError("a subscription's oid cannot change")
            self._write("update_subscription", subscription_values(row))
            self.forget_fault_after(subid, columns)
            if not old.has_same_publisher(row):
                self.forget_sync_progress(subid)
            if old.has_other_database(row):
                for rel in self.rels(subid):  # the oids of tables belong to the old database
                    self.update_rel(subid, rel.srrelid, remote_relid=None, other_relid=None)
        return row

    def clear_skip_lsn(self, subid: int, skiplsn: LSN) -> bool:
        """Clear ``subskiplsn`` after the skip; False, without a change, if the LSN is a new one."""
        lsns = {"subskiplsn": encode_lsn(skiplsn), "none": encode_lsn(LSN(0))}
        return bool(self._write("clear_skip_lsn", {"oid": subid, **lsns}))

    def delete_subscription(self, subid: int) -> None:
        """Forget a subscription with all tables and publications in flight, if the row exists."""
        with self.transaction():
            self._write("insert_former_owner", {"oid": subid})
            self._write("delete_subscription", {"oid": subid})

    def next_generation(self, subid: int) -> int:
        """A new worker generation of the subscription."""
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
        """Add a table in state ``i`` or ``r``, or ``s`` if the lake knows the table's position.

        ``srrelid`` stands for the lake table: subscriptions of a shared table have the table's oid,
        and a table that returns gets the old oid. The oids differ only for several publisher tables
        that a subscription maps to one lake table.
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
            self.forget_transaction_at_fault(rel.srsubid)
        return row

    def set_rel_state(
        self, subid: int, relid: int, state: SubRelState, lsn: LSN | None, setter: Setter
    ) -> SubscriptionRel:
        """Store a move of the state machine; the new row.

        42704 if the table left the subscription (a worker never brings a row back), XX000 if
        ``TRANSITIONS`` has no move from the stored state.
        """
        with self.transaction():
            row = self._must_have_rel(subid, relid)
            check_sublsn(check_stored_transition(row.srsubstate, state, setter), lsn)
            row = dataclasses.replace(row, srsubstate=state, srsublsn=lsn)
            self._write("set_rel_state", rel_values(row))
            if setter is Setter.SUBSCRIPTIONCMDS:
                self.forget_transaction_at_fault(subid)
        return row

    def update_rel(self, subid: int, relid: int, **ours: Any) -> SubscriptionRel:
        """Change columns except PostgreSQL's four; the new row. 42704 without a row."""
        if not _REL_KEY.isdisjoint(ours):
            raise InternalError("srsubstate and srsublsn change through set_rel_state only")
        with self.transaction():
            row = dataclasses.replace(self._must_have_rel(subid, relid), **ours)
            self._write("update_rel", rel_values(row))
        return row

    def delete_rel(self, subid: int, relid: int) -> None:
        """Forget a table of a subscription, if the row exists."""
        with self.transaction():
            self._write("delete_rel", {"srsubid": subid, "srrelid": relid})
            self.forget_last_error(subid, relid)
            self.forget_transaction_at_fault(subid)

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
        """The position of an origin; 0/0 without an origin."""
        origin = self.origin_by_name(name)
        return LSN(0) if origin is None else origin.remote_lsn

    def origin_create(self, name: str) -> int:
        """Make an origin under the lowest free id; 42710 if the name exists."""
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
        """Move an origin forward, or back with ``go_backward``. 42704 without an origin."""
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
        """Set the positions of the subscription's finished copies to 0/0: the server is new."""
        with self.transaction():
            for rel in self.rels(subid):
                name = origin_name(subid, rel.srrelid)
                if self.origin_by_name(name) is not None:
                    self.origin_advance(name, LSN(0), "another server", go_backward=True)

    def origin_drop(self, name: str, missing_ok: bool = True) -> None:
        """Drop an origin; a missing origin is 42704 unless ``missing_ok``."""
        if not self._write("delete_origin", {"roname": name}) and not missing_ok:
            raise UndefinedObject(f'replication origin "{name}" does not exist')

    # Publications and sessions that a successor has to finish

    def put_in_flight(self, subid: int, relids: Iterable[int], lsn: LSN) -> None:
        """Store the tables that a worker is about to publish up to ``lsn``."""
        with self.transaction():
            for relid in relids:
                self._write(
                    "put_in_flight", {"subid": subid, "relid": relid, "lsn": encode_lsn(lsn)}
                )

    def in_flight(self, subid: int) -> list[tuple[int, LSN]]:
        """(relid, lsn) of the tables with a publication of unknown outcome."""
        return self._all("in_flight", lambda row: (row[0], LSN(int(row[1], 16))), subid=subid)

    def clear_in_flight(self, subid: int, relids: Iterable[int], lsn: LSN = MAX_LSN) -> None:
        """Forget the tables, unless a publication beyond ``lsn`` began: the outcome is known."""
        values = {"subid": subid, "lsn": encode_lsn(lsn)}
        with self.transaction():
            for relid in relids:
                self._write("clear_in_flight", {**values, "relid": relid})

    def put_spark_session(
        self, subid: int, relid: int, generation: int, user_id: str, session_id: str
    ) -> None:
        """Remember a Spark session of a worker, before the first use."""
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
        """(user_id, session_id) of every session that a former worker may have left open."""
        return self._all("spark_sessions", _pair, subid=subid, relid=relid)

    def all_spark_sessions(self) -> list[tuple[int, int, int, str, str]]:
        """(subid, relid, generation, user_id, session_id), of dropped subscriptions too."""
        return self._all("all_spark_sessions", lambda r: (r[0], r[1], r[2], r[3], r[4]))

    def forget_spark_sessions(self, subid: int, relid: int, generation_max: int) -> None:
        """Forget the sessions: they are closed."""
        self._write(
            "forget_spark_sessions",
            {"subid": subid, "relid": relid, "generation_max": generation_max},
        )

    def hand_over_spark_session(self, user_id: str, session_id: str, since: float) -> None:
        """Hand a worker's session over to the next worker; ``since`` is Unix time in seconds."""
        ids = {"user_id": user_id, "session_id": session_id}
        with self.transaction():
            self._write("put_idle_spark_session", {**ids, "since": since})
            self.forget_spark_session(**ids)

    def take_spark_session(
        self, subid: int, relid: int, generation: int, *, since: float = 0, before: float = math.inf
    ) -> tuple[str, str] | None:
        """Take the newest handed-over session into the worker's list, for the successor to close.

        At any time a session is in at most one list: of the unused sessions, or of a worker's.
        """
        with self.transaction():
            taken = self.take_idle_spark_session(since=since, before=before)
            if taken is not None:
                self.put_spark_session(subid, relid, generation, *taken)
            return taken

    def take_idle_spark_session(
        self, *, since: float = 0, before: float = math.inf
    ) -> tuple[str, str] | None:
        """Take the newest handed-over session, (user_id, session_id); the session is in no list."""
        with self.transaction():
            taken = self._one("idle_spark_session", _pair, since=since, before=before)
            if taken is not None:
                ids = {"user_id": taken[0], "session_id": taken[1]}
                self._write("forget_idle_spark_session", ids)
            return taken

    def forget_idle_spark_sessions(self) -> None:
        """Forget the unused sessions: the server is gone."""
        self._write("forget_idle_spark_sessions", {})

    def forget_spark_session(self, user_id: str, session_id: str) -> None:
        """Forget an unused session: the session is closed."""
        self._write("forget_spark_session", {"user_id": user_id, "session_id": session_id})

    # Maintenance, leaked slots and settings

    def lake_maintenance(self, subid: int) -> list[LakeMaintenance]:
        """The orphan removals of a subscription's tables, by relid."""
        return self._all("lake_maintenance", lambda row: LakeMaintenance(**dict(row)), subid=subid)

    def put_lake_maintenance(self, done: LakeMaintenance) -> None:
        """Store the orphan removals of a table, if the table is in the subscription."""
        self._write("put_lake_maintenance", dataclasses.asdict(done))

    def lake_upkeep(self, subid: int) -> list[LakeUpkeep]:
        """The maintenance of a subscription's lake tables, by relid and kind."""
        return self._all("lake_upkeep", lambda row: LakeUpkeep(**dict(row)), subid=subid)

    def add_lake_upkeep(self, done: LakeUpkeep) -> None:
        """Add a maintenance of a table, done or failed, if the table is in the subscription."""
        self._write("add_lake_upkeep", dataclasses.asdict(done))

    def lake_writers(self, subid: int) -> list[LakeWriter]:
        """The writers of a subscription's lake tables, as workers chose last."""
        return self._all("lake_writers", lambda row: LakeWriter(**dict(row)), subid=subid)

    def put_lake_writer(self, chosen: LakeWriter) -> None:
        """Store the writer of a table's rows, if it is another than the stored one."""
        self._write("put_lake_writer", dataclasses.asdict(chosen))

    def forget_maintenance_errors(self, subid: int, relid: int) -> None:
        """Forget failures: the table no longer has the rows."""
        self._write("forget_maintenance_errors", {"subid": subid, "relid": relid})

    def put_leaked_slot(self, slot: LeakedSlot) -> None:
        """Remember a slot that stays on the publisher until a user drops the slot."""
        self._write("put_leaked_slot", dataclasses.asdict(slot))

    def leaked_slots(self) -> list[LeakedSlot]:
        """The slots that stay on a publisher."""
        return self._all("leaked_slots", lambda row: LeakedSlot(**dict(row)))

    def forget_leaked_slot(self, slot: LeakedSlot) -> None:
        """Forget a slot: the slot is gone, or in use again."""
        self._write("forget_leaked_slot", dataclasses.asdict(slot))

    def forget_leaked_slot_of_server(self, slot: LeakedSlot) -> None:
        """Forget a slot of a server, through any connection string."""
        self._write("forget_leaked_slot_of_server", dataclasses.asdict(slot))

    def settings(self) -> dict[str, Any]:
        """The settings that ``put_settings`` stored last; empty before."""
        value = self._one("settings", lambda row: json.loads(row[0]))
        return dict(value) if value else {}

    def put_settings(self, value: Mapping[str, Any]) -> None:
        """Store the configuration outside the subscriptions."""
        stored = json.dumps(value, sort_keys=True)
        with self.transaction():
            if self.settings() != json.loads(stored):
                self.forget_all_faults()
            self._write("put_settings", {"value": stored})


def _integer(row: sqlite3.Row) -> int:
    return int(row[0])


def _pair(row: sqlite3.Row) -> tuple[str, str]:
    return row[0], row[1]


def _no_subscription(subid: int) -> UndefinedObject:
    return UndefinedObject(f"subscription with OID {subid} does not exist")
