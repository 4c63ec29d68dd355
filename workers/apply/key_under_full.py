"""Match a table under REPLICA IDENTITY FULL by the primary key. Pure.

The native subscriber finds a row by the primary key of its own table, also under FULL. Whole rows
are the last resort: two texts of one value hide a row. A partitioned table shows why the key has to
be used. ``ALTER TABLE root REPLICA IDENTITY FULL`` does not reach a partition. Published via the
root, each change carries what the partition logs: for a DELETE the partition's key and NULLs, for
an UPDATE without a new key no old row.

A partition may log an index that lacks a column of the primary key. Its old rows have NULL there,
and an UPDATE of the primary key may bring no old row. The index finds no row either: without the
partition key it is unique within the partition alone. So the table stops before an UPDATE or a
DELETE, with the remedy, as a table without a primary key does.

The key is used if the table had the same key when it was copied, or was never copied. Before a
primary key exists, two rows may share the values of its columns, and a DELETE of one row must not
find both. After a primary key is added to a copied table, whole rows find a row as before.

Trace: root m (id, day, v), key (id, day), under FULL; its partition logs the key::

    announced          R(m, f, id* day* v*)
    the publisher      the primary key is (id, day)
    the run            R(m, d, id* day* v), so DELETE (2, 2024-02-01, NULL) finds the row by key
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from catalog.pg_subscription_rel import SubscriptionRel
from config.limits import CACHED_KEY_DIGESTS
from workers.changes.by_table import Run
from workers.changes.failed_transaction import failed_at, no_whole_rows
from workers.changes.relation_map import flagged_key
from workers.columnar.tuples import INSERT
from workers.proto.messages import Relation
from workers.publisher.fingerprint import key_digest, stored_key_digest
from workers.publisher.replica_identity import (
    OTHER_LEAF,
    REPLICA_IDENTITY_FULL,
    Identities,
    key_under_full,
)

_DEFAULT = "d"


def flagged_under_full(run: Run, rel: SubscriptionRel, identities: Identities) -> Run:
    """Return the run with the key flagged, if a key finds the rows.

    Raises 55000, as the fault of a transaction, if no key does, and a partition logs no whole rows.
    """
    relation = run.relation
    if relation is None or relation.replident != REPLICA_IDENTITY_FULL:
        return run
    identity = identities[relation.relid]
    keyed = _flagging(relation, key_under_full(identity, [c.name for c in relation.columns]))
    stored = stored_key_digest(rel.fingerprint)
    if keyed is not None and stored in (None, flagged_key_digest(keyed)):
        return replace(run, relation=keyed)
    if OTHER_LEAF in identity and run.changes is not None:
        others = (run.changes.kind != INSERT).nonzero()[0]
        if len(others):
            raise failed_at(relation, run.changes, int(others[0]), no_whole_rows(relation))
    return run


@lru_cache(maxsize=CACHED_KEY_DIGESTS)
def flagged_key_digest(relation: Relation) -> str:
    """The digest of a relation's key columns: several checks of every batch ask for the digest."""
    return key_digest(flagged_key(relation))


def _flagging(relation: Relation, key: frozenset[str]) -> Relation | None:
    if not key:
        return None
    columns = tuple(replace(column, key=column.name in key) for column in relation.columns)
    return replace(relation, replident=_DEFAULT, columns=columns)
