"""What a worker asks about the publisher's catalog by the clock: names of tables, and types.

Both questions notice what no event of the stream tells. The loop takes a turn at every batch
boundary. Most turns ask nothing::

    every 10 s    types of the tables with an enum or a composite   (workers.apply.text_watch)
    every 60 s    types and column numbers of all tables            (workers.apply.text_watch)
    every 60 s    oids of all tables by name                        (workers.apply.name_watch)
"""

from __future__ import annotations

from dataclasses import dataclass

from workers.apply.apply_batch import Applier
from workers.apply.name_watch import NameWatch
from workers.apply.text_watch import TextWatch


@dataclass(slots=True)
class CatalogWatch:
    """The two watches of a worker."""

    names: NameWatch
    text: TextWatch

    def turn(self, applier: Applier) -> None:
        """Ask what is due; look up inserted keys of tables that turn out to be others."""
        for other in self.names.turn(applier.rels.values()):
            applier.look_up_inserted_keys(other)
        self.text.turn(applier.sub, applier.rels.values(), applier.relmap)
