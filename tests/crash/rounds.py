"""What rounds of deaths have in common: who is killed, and the comparison after each round.

A round arms a place, writes on the publisher, and waits until a process comes there. Then the
process dies by itself, or another victim is killed. Afterwards the rows are the publisher's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.crash.cases import Case, Findings, Way
from tests.crash.family import Family
from tests.fix_publisher import Database

Rows = Mapping[str, Counter[Any]]
"""A table's name → its rows."""


@dataclass(kw_only=True)
class Rounds(Findings):
    """Plays all rounds; ``rounds`` is a module's own."""

    family: Family
    database: Database

    def play(self, cases: Iterable[Case]) -> None:
        """An error is blamed on what was not reached."""
        cases = list(cases)
        try:
            self.rounds(cases)
        except Exception as error:
            open_cases = [case for case in cases if case not in self.reached]
            self.blame(open_cases or cases, f"{type(error).__name__}: {error}")
        finally:
            self.family.failpoints.clear()

    def rounds(self, cases: list[Case]) -> None:
        """Play these cases."""
        raise NotImplementedError

    def kill(self, victim: str) -> None:
        """Kill the victim; who dies by itself is dead already."""
        if victim == "launcher":
            self.family.kill_launcher()
            self.family.start()
        elif victim == "lake server":
            self.family.kill_lake_server()

    def compare(self, cases: Iterable[Case], published: Rows, ours: Rows) -> None:
        """Blame rows that are lost, or too many, on the cases."""
        cases = list(cases)
        for table, rows in published.items():
            lost, extra = rows - ours[table], ours[table] - rows
            if lost or extra:
                self.blame(cases, f"{table}: lost {_told(lost)}, more {_told(extra)}")


Played = TypeVar("Played", bound=Rounds)


def played(made: Played, cases: Iterable[Case], *names: str, **settings: str) -> Iterator[Played]:
    """For a fixture: play the cases with these settings; nothing stays afterwards.

    ``names`` are the subscriptions, and the schemas of their tables.
    """
    made.family.configure(**settings)
    made.play(cases)
    yield made
    for name in names:
        if name in made.family.subscriptions:
            made.family.drop(name)
    made.family.forget_tables(*names)
    made.family.configure()
    made.database.drop()


def ways_of(cases: Iterable[Case]) -> list[Way]:
    """Who dies, and how, in the order of the cases."""
    return list(dict.fromkeys((victim, action) for victim, action, _ in cases))


def _told(rows: Counter[Any]) -> str:
    return f"{rows.total()} {[row for row, _ in rows.most_common(3)]}" if rows else "none"
