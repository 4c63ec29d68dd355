"""What a worker asks about the publisher's catalog: names of tables, and types.

Both questions notice what no event of the stream tells. The loop takes a turn at every batch
boundary, and looks at the texts once more when a batch is in hand. Most turns ask nothing::

    every batch   texts of the tables with an enum or a composite   (workers.apply.text_watch)
    every 10 s    the same, without a batch                         (workers.apply.text_watch)
    every 60 s    types and column numbers of all tables            (workers.apply.text_watch)
    every 60 s    oids of all tables by name                        (workers.apply.name_watch)
    every 60 s    names of all tables by oid                        (workers.tables.rename_watch)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from catalog.errcodes import ReplicationError
from catalog.namespace import qualified_name
from workers.apply.apply_batch import Applier
from workers.apply.copy_again import other_table, other_values
from workers.apply.name_watch import NameWatch
from workers.apply.other_table import warn_of_other
from workers.apply.text_watch import ChangedText, TextWatch, warn_of_text
from workers.process.worker_exit import WorkerExit


@dataclass(slots=True)
class CatalogWatch:
    """The two watches of a worker."""

    names: NameWatch
    text: TextWatch

    def turn(self, applier: Applier) -> None:
        """Ask what is due; copy again what has other rows, or look up the keys of its inserts.

        ``WorkerExit`` if tables have other names: the next worker renames their lake tables.
        """
        _note_renames(applier)
        follower = applier.schema
        for other in self.names.turn(applier.rels.values()):
            if follower is not None and follower.follows(applier.sub, other.rel):
                _copy_again(applier, other_table(other.rel))
            else:
                warn_of_other(other.rel)
                applier.look_up_inserted_keys(other)
        self._tell(applier, self.text.turn(applier.sub, applier.rels.values(), applier.relmap))

    def before_batch(self, applier: Applier) -> None:
        """Copy again, or tell of, what has other text; call this after the batch was received.

        The rows of the batch may have the new text, in keys too.
        """
        rels = applier.rels.values()
        self._tell(applier, self.text.before_batch(applier.sub, rels, applier.relmap))

    def _tell(self, applier: Applier, texts: Iterable[ChangedText]) -> None:
        follower = applier.schema
        for text in texts:
            rel, row = text.rel, text.row
            if text.copies and follower is not None and follower.follows(applier.sub, rel):
                primary = row.primary(qualified_name(rel.nspname, rel.relname))
                _copy_again(applier, other_values(rel, primary, row.detail))
            else:
                warn_of_text(applier.sub, rel, row)
            self.text.keep(text)


def _note_renames(applier: Applier) -> None:
    watch = applier.renames
    renamed = [] if watch is None else watch.turn(applier.sub, applier.rels.values())
    if watch is not None and renamed:
        applier.writer.wait_until_stored()
        said = watch.note(applier.sub, renamed, applier.decided_lsn)
        if said:
            raise WorkerExit(f"its lake tables are renamed: {'; '.join(said)}")


def _copy_again(applier: Applier, error: ReplicationError) -> None:
    """Take a table out at the present batch boundary."""
    error.end_lsn = applier.decided_lsn
    applier.take_out(error)
