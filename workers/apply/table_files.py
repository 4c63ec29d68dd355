"""Notice that a table's rows moved to another file on the publisher.

A table that becomes UNLOGGED sends no more changes. SET LOGGED brings the table back, without the
changes of the meantime: a key that was deleted meanwhile is still in the lake, and an insert of the
key would double the key. Both commands move the rows to a new file (``pg_class.relfilenode``), and
the publisher announces the table before the next change. So a table with another file than during
the copy is no longer trusted.

VACUUM FULL, CLUSTER and a rewriting ALTER TABLE give a new file too. Most of them change no row.
They look the same from outside, and cost the trust.

TRUNCATE gives a new file and is in the stream. The new file is taken over, but only if no later
command can have made the file: the transaction of the TRUNCATE in the stream must be the last
writer of the table's row in ``pg_class``. A TRUNCATE in a subtransaction, or in a transaction that
is followed by another change of the table's definition, costs the trust. One transaction that
empties a table, and then makes the table UNLOGGED and LOGGED again, is not noticed.

The file is taken over when the TRUNCATE is applied: changes from before may come again until then.
An unknown file (a copy by an older version) is taken over at the first comparison.

A trace: table a, copied with file 16402. At each announcement the publisher is asked::

    R(a) I           file 16402                          trusted
    xid 7: T(a)      file 16410, written by xid 7        trusted, the stored file is 16410
    R(a) I           file 16418, written by xid 9        look up inserted keys from now on
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from catalog.pg_subscription_rel import SubscriptionRel
from workers.changes.by_table import Run
from workers.changes.relation_map import RelName
from workers.publisher.fingerprint import TableFile, stored_file, with_file


@dataclass(slots=True)
class TableFiles:
    """What a worker knows of the tables' files beside the catalog.

    ``_truncated`` has the transaction of a table's last TRUNCATE until the files are compared.
    ``_found`` has the new files of the part in hand.
    """

    _truncated: dict[RelName, int] = field(default_factory=dict)
    _found: dict[RelName, int] = field(default_factory=dict)

    def note_truncates(self, runs: Mapping[RelName, Sequence[Run]]) -> set[RelName]:
        """Remember the TRUNCATEs of runs; return the truncated tables."""
        xids = {
            target: run.truncate_xid for target, own in runs.items() for run in own if run.truncate
        }
        self._truncated |= xids
        return set(xids)

    def is_rewritten(self, rel: SubscriptionRel, file: TableFile) -> bool:
        """Compare the files: may the rows have changed without an event?"""
        name = rel.nspname, rel.relname
        truncated_by = self._truncated.pop(name, None)
        known = self._found.get(name, stored_file(rel.fingerprint))
        if known == file.number:
            return False
        if known is not None and truncated_by != file.xid:
            return True
        self._found[name] = file.number
        return False

    def take_over(self, rels: Mapping[RelName, SubscriptionRel]) -> list[SubscriptionRel]:
        """The part is applied: return the new catalog rows of the tables with a new file."""
        found, self._found = self._found, {}
        return [
            replace(rel, fingerprint=with_file(rel.fingerprint, number))
            for name, number in found.items()
            if (rel := rels.get(name)) is not None and rel.copied and rel.fingerprint is not None
        ]

    def forget_part(self) -> None:
        """The part is not applied, and comes again."""
        self._found.clear()
        self._truncated.clear()
