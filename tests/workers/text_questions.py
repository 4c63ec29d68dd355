"""A publisher that is asked for the types of tables, and for the mark of their texts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from workers.publisher.changing_text import TextType, TextTypes


@dataclass(slots=True)
class TextPublisher:
    """``types`` are the types by the publisher's oids of tables; ``asked`` are the questions."""

    types: Mapping[int, TextTypes] = field(default_factory=dict)
    asked: list[set[int]] = field(default_factory=list)
    marks: int = 0
    moved: list[str] = field(default_factory=list)
    partitions: list[tuple[set[int], set[int]]] = field(default_factory=list)

    def text_types(self, relids: Collection[int]) -> Mapping[int, TextTypes]:
        """The types of some tables."""
        self.asked.append(set(relids))
        return {relid: self.types[relid] for relid in relids}

    def text_mark(self, types: Mapping[int, TextType]) -> str:
        """The texts themselves, with their versions."""
        self.marks += 1
        present = {oid: each for table in self.types.values() for oid, each in table.types.items()}
        told = {oid: present[oid] for oid in sorted(types) if oid in present}
        return " ".join(f"{oid}:{each.parts}{each.versions}" for oid, each in told.items())

    def moved_partitions(self, came: Collection[int], went: Collection[int]) -> list[str]:
        """What is told of partitions; ``partitions`` are the questions."""
        self.partitions.append((set(came), set(went)))
        return self.moved
