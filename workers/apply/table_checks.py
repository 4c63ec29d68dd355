"""Check the tables that a batch changes, before any change is written.

A table on the publisher may have changed since the copy. The checks, in this order:

1. The table was renamed: an error, because no lake table has the new name.
2. A list column of the lake table gets an array whose elements no comma separates (PostGIS): an
   error, because the array would be read as a wrong list.
3. A different table has the name now, or the key columns have other names or types than during the
   copy, or the table is published differently or has another file than during the copy
   (``workers.apply.table_files``). In each case an inserted key may be in the lake table already.
   From then on inserted keys are looked up. The catalog row of the table says ``copied = false``
   before the batch is written.
4. The columns that a Relation message flags as key may be only a part of the replica identity.

Before the third check, a table under REPLICA IDENTITY FULL gets its primary key as key
(``workers.apply.key_under_full``).

A trace: table a was copied whole, with fingerprint F. The publication's row filter is dropped, and
the publisher announces a again. The fingerprint is G now::

    changed_tables    a: copied = false, fingerprint = G
    the catalog       stores copied = false, fingerprint = G
    the writer        looks up the keys of a's inserts, in this batch and from now on
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from catalog.namespace import qualified_name
from catalog.pg_subscription import Subscription, TableOptions, options_of
from catalog.pg_subscription_rel import SubscriptionRel
from workers.apply.key_under_full import flagged_key_digest, flagged_under_full
from workers.apply.other_table import other_relid
from workers.apply.table_files import TableFiles
from workers.changes.by_table import Run
from workers.changes.column_checks import list_columns, no_list
from workers.changes.column_rules import taken_of
from workers.changes.failed_transaction import FailedTransaction, failed_at
from workers.changes.relation_map import (
    RelName,
    flags_key,
    name_of,
)
from workers.columnar.binary.forms import FIRST_NORMAL_OID
from workers.columnar.column_reader import UnreadableValue, in_form
from workers.lake.sources import delete_rows, source_of
from workers.lake.table import LakeTable
from workers.proto.message_rows import MESSAGES
from workers.proto.messages import Relation
from workers.publisher.binary_columns import BinaryForms, UnknownForm
from workers.publisher.fingerprint import (
    PublishedTable,
    published_as,
    stored_key_digest,
    with_key_digest,
)
from workers.publisher.replica_identity import REPLICA_IDENTITY_FULL, Coverage, Identities, coverage
from workers.stream.batch import Batch
from workers.tables.rename_watch import TableRenamed

log = logging.getLogger(__name__)

_FORMS_OF_MESSAGES = BinaryForms(lambda _unknown: {})

_BOXES = 1020  # box[], the only built-in array whose elements no comma separates

Runs = Mapping[RelName, Sequence[Run]]
"""The runs of each table that a batch changes."""


@dataclass(frozen=True, slots=True)
class ChangedTable:
    """A table that changed since the copy: inserted keys are looked up from now on.

    ``rel`` is the new catalog row. ``columns`` are the columns of the row that have to be stored
    besides ``copied``.
    """

    rel: SubscriptionRel
    columns: dict[str, str | int | None] = field(default_factory=dict)


def subscribed_as(
    rels: Mapping[RelName, SubscriptionRel], target: RelName, relids: Collection[int]
) -> SubscriptionRel | None:
    """Return the catalog row of the table with the name, or of the table before a renaming."""
    if (rel := rels.get(target)) is not None:
        return rel
    own = (rel for rel in rels.values() if (rel.other_relid or rel.remote_relid) in relids)
    return next(own, None)


def check_not_renamed(
    sub: Subscription,
    runs: Runs,
    found: Mapping[RelName, SubscriptionRel],
    batch: Batch,
    *,
    may_cut: bool,
) -> None:
    """Raise 55000, as the fault of a transaction, if a table was renamed on the publisher.

    ``found`` has the catalog row of each table. Changes of a table that was never subscribed are
    dropped in silence and are not in ``runs``. ``may_cut`` is False if the caller cannot cut the
    batch.
    """
    for target, own in runs.items():
        rel = found[target]
        if (rel.nspname, rel.relname) == target:
            continue
        error = TableRenamed(
            f'logical replication target relation "{".".join(target)}" does not exist',
            detail=f'The publisher\'s table was "{rel.nspname}.{rel.relname}" when it was '
            "subscribed.",
            hint=_after_renaming(sub, rel, target),
        )
        changes = own[0].changes
        if changes is None and not may_cut:
            raise error
        # The transaction of a lone TRUNCATE is not known: the cut into halves finds it.
        txn = batch.ntxns // 2 if changes is None else int(changes.txn[0])
        error.tables = (rel,)
        raise FailedTransaction(txn, error)


def _after_renaming(sub: Subscription, rel: SubscriptionRel, target: RelName) -> str:
    """Return the hint for a user whose table was renamed."""
    lake = f'lake table "{rel.lake_schema}.{rel.lake_table}"'
    pgsub_refresh = f"pgsub refresh {shlex.quote(sub.subname)}"
    refresh = f"{pgsub_refresh} copies it under its new name"
    if not source_of(sub, rel):
        old = shlex.quote(qualified_name(rel.nspname, rel.relname))
        return (
            f"{refresh}; {lake} stays as it is. If the table has its old name again, "
            f"{pgsub_refresh} --recopy {old} goes on."
        )
    new, name = sub.table_options(*target), ".".join(target)
    if not new.shared or (new.to or target) != (rel.lake_schema, rel.lake_table):
        refresh = (
            f'Say of table "{name}" in the configuration file what it says of '
            f'"{rel.nspname}.{rel.relname}", which stays there until pgsub up FILE has copied '
            "it under its new name"
        )
    return (
        f"{refresh}. The rows that shared {lake} has under the old name are there twice then, "
        f"until you delete them: {delete_rows(sub, rel)}"
    )


def run_in_form(run: Run, binary: BinaryForms | None) -> Run:
    """Return a run that knows how the values are read.

    A value or a type that cannot be read is the fault of the transaction. Logical messages have
    binary form in every stream.
    """
    if run.relation is None or run.changes is None:
        return run
    if run.relation == MESSAGES:
        binary = _FORMS_OF_MESSAGES
    try:
        nodes = None if binary is None else binary.of(run.relation)
        return replace(run, changes=in_form(run.changes, nodes))
    except (UnknownForm, UnreadableValue) as error:
        change = error.change if isinstance(error, UnreadableValue) else 0
        raise failed_at(run.relation, run.changes, change, error) from None


@dataclass(slots=True)
class TableChecks:
    """The checks of a worker: they ask the publisher and remember the answers.

    ``published`` asks for the current fingerprint and file of every published table, and returns
    None if the fingerprints are not known now. ``identities`` asks for the replica identities of
    some tables. ``delimiters`` asks what separates the elements of array types that are not built
    in; the answer never changes. ``_identities`` has the answers by relid, until the relation is
    announced again.
    ``uncompared`` has the tables that were announced, and whose fingerprint was not compared since.
    """

    published: Callable[[], Mapping[RelName, PublishedTable] | None]
    identities: Callable[[Collection[int]], Identities]
    delimiters: Callable[[Collection[int]], Mapping[int, str]]
    uncompared: set[RelName] = field(default_factory=set)
    files: TableFiles = field(default_factory=TableFiles)
    _identities: dict[int, Mapping[str, bool]] = field(default_factory=dict)
    _lock_logged: bool = False
    _delimiters: dict[int, str] = field(default_factory=lambda: {_BOXES: ";"})

    def check_delimiters(
        self,
        runs: Runs,
        tables: Mapping[RelName, LakeTable],
        options: Mapping[str, TableOptions],
    ) -> None:
        """Raise 0A000, as the fault of a transaction, if a list gets arrays without commas.

        The publisher is asked once about each type that is not built in and goes to a list. A type
        that was dropped since counts as one with commas: the lists of such a type were right.
        """
        found = [
            (run.relation, run.changes, column, lake_column, tables[target].ident)
            for target, own in runs.items()
            if (lists := list_columns(tables[target]))
            for own_options in (options_of(options, *target),)
            for run in own
            if run.relation is not None and run.changes is not None
            for column in taken_of(run.relation, own_options).columns
            if (lake_column := own_options.lake_column(column.name)) in lists
        ]
        oids = {column.typid for *_, column, _, _ in found if column.typid >= FIRST_NORMAL_OID}
        if unknown := oids - self._delimiters.keys():
            self._delimiters |= dict.fromkeys(unknown, ",") | dict(self.delimiters(unknown))
        for relation, changes, column, lake_column, ident in found:
            delimiter = self._delimiters.get(column.typid, ",")
            if delimiter != ",":
                error = no_list(lake_column, delimiter, ident)
                raise failed_at(relation, changes, 0, error, column.name)

    def by_key_under_full(
        self,
        runs: Runs,
        rels: Mapping[RelName, SubscriptionRel],
        announced: Collection[Relation],
    ) -> dict[RelName, list[Run]]:
        """Return the runs; where a primary key finds rows under FULL, the relation flags the key.

        The publisher is asked about a relation once, and again after each new announcement. The
        answer holds for ``with_coverage``, too.
        """
        for relation in announced:
            self._identities.pop(relation.relid, None)
        every = {run.relation for own in runs.values() for run in own}
        full = {each for each in every if each and each.replident == REPLICA_IDENTITY_FULL}
        self._ask_for_unknown(full)
        return {
            target: [flagged_under_full(run, rels[target], self._identities) for run in own]
            for target, own in runs.items()
        }

    def _ask_for_unknown(self, relations: Collection[Relation]) -> None:
        """Ask for the replica identities that are not known since the last announcement."""
        if unknown := {relation.relid for relation in relations} - self._identities.keys():
            found = self.identities(unknown)
            self._identities |= {relid: found.get(relid, {}) for relid in unknown}

    def changed_tables(
        self,
        runs: Runs,
        rels: Mapping[RelName, SubscriptionRel],
        announced: Collection[Relation],
    ) -> list[ChangedTable]:
        """Find the tables whose inserted keys must be looked up from now on.

        Only a table that the publisher has just announced can have a new fingerprint: after any
        change of the publication a Relation message comes before the next change. A TRUNCATE gives
        a table a new file. The fingerprint
        holds row versions, so a change of the publication is seen even after the change was undone.

        A table stays in ``uncompared`` while a lock keeps the publisher from answering. The caller
        looks up the keys of the batch, and the next batch asks again. The version of every row is
        in the fingerprint, so an equal fingerprint later proves that nothing changed meanwhile.
        """
        self.uncompared |= {name_of(relation) for relation in announced}
        # A renamed table is announced under its new name, and its changes are those of the old one.
        self.uncompared |= {
            target for target, own in runs.items() if any(run.relation in announced for run in own)
        }
        self.uncompared |= self.files.note_truncates(runs)
        changed: list[ChangedTable] = []
        copied_whole: list[SubscriptionRel] = []
        for target, own in runs.items():
            rel = rels[target]
            if (relid := other_relid(rel, own)) is not None:
                now = replace(rel, copied=False, other_relid=relid)
                changed.append(ChangedTable(now, {"other_relid": relid}))
            elif rel.copied and _has_other_key(rel, own):
                changed.append(ChangedTable(replace(rel, copied=False)))
            elif rel.copied and target in self.uncompared:
                copied_whole.append(rel)
        if copied_whole:
            changed += self._compared(copied_whole)
        return changed

    def _compared(self, rels: Sequence[SubscriptionRel]) -> list[ChangedTable]:
        """Ask for the fingerprints, and find the tables that are published differently."""
        published = self.published()
        if published is None:
            if not self._lock_logged:
                log.info(
                    "action=not_compared a lock on the publisher hides how tables are published; "
                    "inserted keys are looked up until the lock is gone"
                )
            self._lock_logged = True
            return []
        self._lock_logged = False
        self.uncompared -= {(rel.nspname, rel.relname) for rel in rels}
        return _published_differently(rels, published, self.files)

    def with_first_keys(
        self, runs: Runs, rels: Mapping[RelName, SubscriptionRel]
    ) -> list[SubscriptionRel]:
        """Return new catalog rows of the tables whose key was not known: the key is the run's.

        A copy by an older version stored no digest of the key.
        """
        return [
            replace(rel, fingerprint=with_key_digest(rel.fingerprint, digest))
            for target, own in runs.items()
            if (rel := rels[target]).copied
            and rel.fingerprint is not None
            and stored_key_digest(rel.fingerprint) is None
            for digest in _key_digests(own)
        ]

    def with_coverage(
        self, runs: Runs, rels: Mapping[RelName, SubscriptionRel]
    ) -> dict[RelName, list[Run]]:
        """Return the runs with the answer: are the key columns the whole replica identity?

        Called after ``by_key_under_full``, which forgets the identities of announced relations.
        """
        every = [run.relation for own in runs.values() for run in own]
        self._ask_for_unknown([each for each in every if each and flags_key(each)])
        return {
            target: [self._with_coverage(run, rels[target]) for run in own]
            for target, own in runs.items()
        }

    def _with_coverage(self, run: Run, rel: SubscriptionRel) -> Run:
        if run.relation is None or not flags_key(run.relation):
            return run
        found = coverage(run.relation, self._identities[run.relation.relid])
        if found is Coverage.WHOLE and rel.key_unsure:
            found = Coverage.UNKNOWN
        return replace(run, coverage=found)


def _key_digests(runs: Sequence[Run]) -> set[str]:
    """Return the digests of the key columns, one for each key that a change of the runs has."""
    relations = {run.relation for run in runs if run.relation is not None}
    return {flagged_key_digest(relation) for relation in relations}


def _has_other_key(rel: SubscriptionRel, runs: Sequence[Run]) -> bool:
    """Do the key columns differ in name or type from the key of the copy, or within the batch?

    ALTER COLUMN TYPE with USING may give every row of the publisher another key, and sends no
    change of a row. So an inserted key may be the old key of a row in the lake table. Only changes
    that the worker applies count: a message before the copy may describe an older key.
    """
    known = stored_key_digest(rel.fingerprint)
    digests = _key_digests(runs) | ({known} if known else set())
    if len(digests) <= 1:
        return False
    log.info(
        'action=key_altered subid=%d relid=%d table "%s.%s" has not the key columns, or their '
        "types, of when it was copied; inserted keys are looked for",
        rel.srsubid,
        rel.srrelid,
        rel.nspname,
        rel.relname,
    )
    return True


def _published_differently(
    rels: Sequence[SubscriptionRel], published: Mapping[RelName, PublishedTable], files: TableFiles
) -> list[ChangedTable]:
    """Find the tables with a fingerprint, or a file, that differs from that of the copy.

    A DELETE may not have been published, or an UPDATE may have brought a row into a new filter. So
    an inserted key may be in the lake table already, even after the publication is widened again.
    """
    changed = []
    for rel in rels:
        now = published.get((rel.nspname, rel.relname))
        fingerprint = None if now is None else now.fingerprint
        if now is None or fingerprint != published_as(rel.fingerprint):
            log.info(
                'action=republished subid=%d relid=%d table "%s.%s" is not published as when it '
                "was copied; inserted keys are looked for",
                *(rel.srsubid, rel.srrelid, rel.nspname, rel.relname),
            )
            other = replace(rel, copied=False, fingerprint=fingerprint)
            changed.append(ChangedTable(other, {"fingerprint": fingerprint}))
        elif files.is_rewritten(rel, now.file):
            log.info(
                'action=rewritten subid=%d relid=%d table "%s.%s" was rewritten on the publisher, '
                "and may have been UNLOGGED meanwhile; inserted keys are looked for",
                *(rel.srsubid, rel.srrelid, rel.nspname, rel.relname),
            )
            changed.append(ChangedTable(replace(rel, copied=False)))
    return changed
