"""The places that no kill round comes to: of commands, permanent slots, and second copies.

One subscription for each place of a command, one whose tables come through ``f``, one with a table
that is copied again: so processes stand at all of these places at once when the victim dies. Then
they go on, a command that failed is repeated, as a user would, and every table is compared with
the publisher's.

Those that have to be there before are made by one command, and have no worker at first. What
breaks them is a slot that is gone, and for ``accept-gap`` another server as well, so that every
table is concerned. They are enabled while the command stands: nothing but the launcher keeps
workers away from what it changes, and after the launcher's death nothing does.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from subprocess import CompletedProcess
from typing import Any, Final

from catalog.pg_subscription import SubCreate
from catalog.store_sqlite import CatalogStore
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.crash.cases import ITSELF, Case, Findings, Way, cases_of
from tests.crash.family import Family, wait_confirmed
from tests.crash.kill_rounds import PATIENCE
from tests.fix_publisher import Database, new_database
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.process.failpoints import ACCEPT_GAP, CREATE, DROP, EMPTIED, FINISHEDCOPY, RECOPY
from workers.process.launcher_client import notify_launcher

PLACES: Final = (*FINISHEDCOPY, *EMPTIED, *CREATE, *DROP, *RECOPY, *ACCEPT_GAP)
DIE_HERE: Final = (*EMPTIED, *RECOPY, *ACCEPT_GAP)
"""Where somebody dies by itself; at the others that is what other tests are about."""

FINISHED = "other_finished"
AGAIN = "other_again"
COPIES = ("log", "keyed", "log2", "log3")

NOT_AGAIN: Final = {
    **dict.fromkeys(CREATE, "already exists"),
    **dict.fromkeys(DROP, "does not exist"),
    **dict.fromkeys(ACCEPT_GAP, "there is no gap to accept"),
}
"""What a command says, by its places, that has nothing to do any more."""

Done = CompletedProcess[str]


def subscription_of(place: str) -> str:
    """Which one a process is about that stands there; its schema has the same name."""
    if place in FINISHEDCOPY:
        return FINISHED
    return AGAIN if place in EMPTIED else f"other_{place.replace('.', '_')}"


def tables_of(name: str) -> tuple[str, ...]:
    """Most of them have no key: a row that is applied twice is there twice."""
    if name == FINISHED:
        return COPIES
    return ("log", "keyed") if name == subscription_of(ACCEPT_GAP[-1]) else ("log",)


@dataclass(kw_only=True)
class OtherRounds(Findings):
    """Plays a victim's round, after deaths by themselves if those are among the ways."""

    family: Family
    database: Database
    ways: tuple[Way, ...]

    @property
    def cases(self) -> list[Case]:
        """All that is played."""
        itself = [way for way in self.ways if way in ITSELF]
        others = [way for way in self.ways if way not in ITSELF]
        return [*cases_of(DIE_HERE, *itself), *cases_of(PLACES, *others)]

    def play(self) -> None:
        """Everything; an error is blamed on what was not reached."""
        try:
            self._prepare()
            for victim, action in self.ways:
                if victim == "itself":
                    self._die(action)
                else:
                    self._kill(victim, action)
            self._finish()
        except Exception as error:
            open_cases = [case for case in self.cases if case not in self.reached]
            self.blame(open_cases or self.cases, f"{type(error).__name__}: {error}")
        finally:
            self.family.failpoints.clear()

    # -- what is there ---------------------------------------------------------------------------

    def _prepare(self) -> None:
        for name in dict.fromkeys(map(subscription_of, PLACES)):
            key = {"keyed": "PRIMARY KEY"}
            self.database.run(
                f"CREATE SCHEMA {name}",
                *(
                    f"CREATE TABLE {name}.{table} (id int {key.get(table, '')}, v text)"
                    for table in tables_of(name)
                ),
                f"CREATE PUBLICATION {name} FOR TABLES IN SCHEMA {name}",
            )
        self._write(FINISHED, AGAIN, *map(subscription_of, RECOPY))
        idle = [subscription_of(place) for place in (*DROP, *RECOPY, *ACCEPT_GAP)]
        empty = [subscription_of(place) for place in ACCEPT_GAP]
        entries = {
            name: self._entry(name, enabled=False, copy_data=name not in empty) for name in idle
        }
        entries[AGAIN] = self._entry(AGAIN, copy_data=False)
        self._command("create", str(self.family.file_of(entries)))

    def _entry(self, name: str, **options: Any) -> dict[str, Any]:
        return {"connection": self.database.dsn, "publication": [name], "with": options}

    def _write(self, *names: str) -> None:
        """A transaction for each table."""
        self.database.run(
            *(
                f"INSERT INTO {name}.{table} SELECT m + i, 'v' FROM generate_series(1, 20) i,"
                f" (SELECT coalesce(max(id), 0) AS m FROM {name}.{table})"
                for name in names
                for table in tables_of(name)
            )
        )

    def _store(self) -> closing[CatalogStore]:
        return closing(CatalogStore.open(self.family.pgsub.data_dir))

    def _update(self, name: str, **columns: Any) -> None:
        """Change a subscription's row."""
        with self._store() as store:
            store.update_subscription(self.family.subid(name), **columns)

    def _break(self, place: str) -> None:
        """What RECOPY and ACCEPT_GAP mend."""
        name = subscription_of(place)
        self.database.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE slot_name = %s",
            (name,),
        )
        if place in ACCEPT_GAP:
            self._update(name, sysid="1")

    # -- commands --------------------------------------------------------------------------------

    def _words(self, place: str) -> tuple[str, ...]:
        """The command that comes to a place."""
        name = subscription_of(place)
        if place in CREATE:
            # Without copy_data the command makes the lake table.
            entry = self._entry(name, enabled=False, copy_data=False)
            return ("create", str(self.family.file_of({name: entry})))
        if place in DROP:
            return ("drop", name)
        return ("accept-gap", name) if place in ACCEPT_GAP else ("refresh", name, "--recopy")

    def _command(self, *words: str, status: int | None = 0) -> Done:
        return self.family.pgsub.command(*words, status=status)

    def _finish_command(self, place: str, done: Done) -> str | None:
        """Have what failed repeated until it is done; what is wrong with that."""
        for _ in range(2):
            if done.returncode == 0 or NOT_AGAIN.get(place, "\0") in done.stderr:
                return None
            if done.returncode != 1 or "Traceback" in done.stderr:
                break
            done = self._command(*self._words(place), status=None)
        return f"status {done.returncode}: {done.stderr}"

    # -- whoever comes to a place dies there -----------------------------------------------------

    def _die(self, action: str) -> None:
        failpoints, number = self.family.failpoints, [how for _, how in ITSELF].index(action)
        for place in EMPTIED:
            failpoints.arm(place, action=action)
            self._command(*self._words(place))
            failpoints.wait_held(place, PATIENCE, self.family.log_tail)
            self.reached.add(("itself", action, place))
        for places in (RECOPY, ACCEPT_GAP):
            one = places[-1 - number]  # its subscription comes to all of them, in turn
            self._break(one)
            for place in places:
                failpoints.arm(place, action=action)
                done = self._command(*self._words(one), status=None)
                assert failpoints.held(place), f"{place}: {done.stderr}"
                expected = -signal.SIGKILL if action == "kill" else 1
                if done.returncode != expected or "Traceback" in done.stderr:
                    what = f"status {done.returncode}: {done.stderr}"
                    self.blame([("itself", action, place)], what)
                self.reached.add(("itself", action, place))
                failpoints.release(place)
            wrong = self._finish_command(one, self._command(*self._words(one), status=None))
            if wrong is not None:
                self.blame(cases_of(places, ("itself", action)), wrong)

    # -- a victim dies while others stand at their places ----------------------------------------

    def _kill(self, victim: str, action: str) -> None:
        failpoints, log_tail = self.family.failpoints, self.family.log_tail
        failpoints.arm(*FINISHEDCOPY, *EMPTIED)
        entry = {**self._entry(FINISHED), "sync_slot": "permanent"}
        self._command("create", str(self.family.file_of({FINISHED: entry})))
        self._command(*self._words(EMPTIED[0]))
        with ThreadPoolExecutor(len(PLACES)) as pool, ExitStack() as at_the_end:
            at_the_end.callback(failpoints.clear)  # nobody is waited for who stands
            under_way = {
                place: self._send(place, pool) for place in (*CREATE, *DROP, *RECOPY, *ACCEPT_GAP)
            }

            def all_stand() -> bool:
                self._write(FINISHED)
                return all(map(failpoints.held, (*FINISHEDCOPY, *EMPTIED)))

            wait_until(all_stand, PATIENCE, log_tail)
            if victim == "launcher":
                self.family.kill_launcher()
                self.family.start()  # and it knows nothing of what the commands keep still
            else:
                self.family.kill_lake_server()
            for place in PLACES:
                failpoints.release(place)
            self.reached.update(cases_of(PLACES, (victim, action)))
            for place, future in under_way.items():
                wrong = self._finish_command(place, future.result())
                if wrong is not None:
                    self.blame([(victim, action, place)], wrong)

    def _send(self, place: str, pool: ThreadPoolExecutor) -> Future[Done]:
        """Have a command come to a place; returns when it stands there."""
        failpoints = self.family.failpoints
        if place in (*RECOPY, *ACCEPT_GAP):
            self._break(place)
        failpoints.arm(place)
        sent = pool.submit(self._command, *self._words(place), status=None)
        wait_until(lambda: failpoints.held(place) or sent.done(), PATIENCE, self.family.log_tail)
        assert failpoints.held(place), f"{place}: {sent.result().stderr}"
        if place in (*RECOPY, *ACCEPT_GAP):
            self._update(subscription_of(place), subenabled=True)
        return sent

    # -- what became of the rows -----------------------------------------------------------------

    def _finish(self) -> None:
        """All tables follow, and are compared; what CREATE and DROP leave is looked at."""
        settled = (*CREATE, *DROP)
        names = dict.fromkeys(subscription_of(place) for place in PLACES if place not in settled)
        notify_launcher(self.family.pgsub.data_dir)
        wait_until(lambda: not self._not_ready(names), PATIENCE, lambda: self._not_ready(names))
        self._write(*names)
        wait_confirmed(self.family, self.database, *names)
        for place in PLACES:
            wrong = self._left(place) if place in settled else None
            wrong = wrong or (None if place in DROP else self._differs(subscription_of(place)))
            if wrong:
                self.blame([case for case in self.cases if case[2] == place], wrong)

    def _not_ready(self, names: Iterable[str]) -> list[str]:
        """The tables that are not in ``r``, and what stops them."""
        with self._store() as store:
            subs = {sub.oid: sub.subname for sub in store.subscriptions() if sub.subname in names}
            errors = [f"{subs[e.subid]}: {e}" for e in store.last_errors() if e.subid in subs]
            rels = [rel for oid in subs for rel in store.rels(oid)]
        waited = [f"{rel.nspname}.{rel.relname}" for rel in rels if rel.srsubstate != "r"]
        return [*waited, *errors] if waited else []

    def _differs(self, name: str) -> str | None:
        for table in tables_of(name):
            published = Counter(native_rows(self.database, f"{name}.{table}"))
            ours = Counter(self.family.pgsub.rows(name, table))
            lost, extra = published - ours, ours - published
            if lost or extra:
                return f"{name}.{table}: lost {lost.most_common(5)}, more {extra.most_common(5)}"
        return None

    def _left(self, place: str) -> str | None:
        """After CREATE a slot and a row that is ready are to be there, after DROP neither."""
        name = subscription_of(place)
        slots = "SELECT slot_name FROM pg_replication_slots WHERE slot_name = %s"
        with self._store() as store:
            row = store.subscription_by_name(name)
        left = (row and row.subcreate, self.database.execute(slots, (name,)))
        wanted = (SubCreate.READY, [(name,)]) if place in CREATE else (None, [])
        return None if left == wanted else f"left: {left}"


def play_other_rounds(
    publisher: EmbeddedPublisher, family: Family, base: str, ways: tuple[Way, ...]
) -> OtherRounds:
    """The rounds in a database of their own; nothing of it stays."""
    database = new_database(publisher, base)
    played = OtherRounds(family=family, database=database, ways=ways)
    played.play()
    schemas = {subscription_of(place) for place in PLACES}
    with closing(CatalogStore.open(family.pgsub.data_dir)) as store:
        there = [sub.subname for sub in store.subscriptions() if sub.subname in schemas]
    family.pgsub.command("exec", ";".join(f"DROP SUBSCRIPTION {name}" for name in there))
    family.forget_tables(*schemas)
    database.drop()
    return played
