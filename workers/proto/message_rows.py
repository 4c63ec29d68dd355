"""Logical messages as rows: the relation whose inserts they are.

``pg_logical_emit_message`` writes a message into the publisher's WAL. With ``messages_to`` a
subscription has the messages as rows of a lake table. For everything behind the drain kernel
(``columnar.logical_message``) a message is an insert into a relation with a name and an oid of its
own, so position, gate, SKIP, crash and rebuild are those of any table. The name is in
``pg_catalog``, where no table can be published, and the oid is the function's: a user's table has
an oid above 16383.

No publisher announces the relation, so every relation map knows it from the start. All values are
in binary form, whatever the form of the stream is: a content has 1 GB at most, and as text twice as
much. The relation has no rows to copy: its table is in ``r`` from the start, and takes the messages
behind the position at which the table joined.
"""

from __future__ import annotations

from typing import Final

from catalog.namespace import MESSAGES_TABLE
from workers.proto.messages import Relation, RelationColumn

RELID: Final = 3578
"""The oid of pg_logical_emit_message(boolean, text, bytea)."""

FIRST_WITH_MESSAGES: Final = 14
"""An older publisher sends no logical message."""

DDL_PREFIX: Final = "pgsub.ddl"
"""The prefix of messages of pgsub's event triggers, which are no rows."""

_TEXT, _BYTEA, _PG_LSN, _BOOL = 25, 17, 3220, 16

MESSAGES: Final = Relation(
    RELID,
    *MESSAGES_TABLE,
    "n",
    (
        RelationColumn(False, "prefix", _TEXT, -1),
        RelationColumn(False, "content", _BYTEA, -1),
        RelationColumn(False, "lsn", _PG_LSN, -1),
        RelationColumn(False, "transactional", _BOOL, -1),
    ),
)
