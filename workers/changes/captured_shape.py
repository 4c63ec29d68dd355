"""The shape of a table at the position of a change of its definition, as a trigger told it. Pure.

With ``ddl_capture: on`` event triggers of the publisher emit a logical message for each command
that changes a table (``subscriber.commands.ddl_capture``). The message is in the transaction of the
command, between the changes before and after. The content has the rows that the question for a
shape has (``publisher.table_shape``), and so the same shape comes of it, without the later changes
that the publisher's catalog may have by now::

    ALTER TABLE t RENAME a TO b; ALTER TABLE t DROP b; ALTER TABLE t ADD b int
    by looking    message t(b); the catalog has 2 dropped, 3 b      a rename, or drop and add?
    captured      1: 2 is b    2: 2 is dropped    3: 3 is b         known

``rewritten`` says how the command gave rows other values: a computed default, a type. VACUUM FULL
and TRUNCATE are no such command. ``using`` says that the text of the command has the word USING or
is not known, so a type that holds more may come with other values as well.

Any role may emit a message with the prefix of the triggers. So a message begins with a seal: a
digest of a key and the content. Only the triggers' owner and roles for replication can read the
key. The content has the number of the transaction, so an old message cannot be emitted once more.
What has no right seal has no effect.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from catalog.errcodes import ProtocolViolation
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from workers.changes.cannot_follow import CannotFollow
from workers.publisher.remote_table import types_of
from workers.publisher.table_shape import TableShape, shape_of

log = logging.getLogger(__name__)

PROMOTED: Final = frozenset({(21, 23), (21, 20), (23, 20), (700, 701)})
"""int2 → int4, int2 → int8, int4 → int8, float4 → float8: rewritten, with equal values."""

_VERSION: Final = 1
_SEAL: Final = 64
_COMPUTED: Final = 2

Row = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class CapturedShape:
    """A message of the triggers: ``text`` is the content, ``lsn`` the end of the transaction.

    ``rewritten`` has PostgreSQL's reasons of a rewriting: 2 a computed default, 4 a type.
    """

    relid: int
    rewritten: int
    using: bool
    text: str
    lsn: LSN = InvalidXLogRecPtr

    def after(self, earlier: CapturedShape | None) -> CapturedShape:
        """The shape, with the rewriting of an earlier shape that no row has followed yet.

        Two types one after the other may lose values: int4 → float4 → int8.
        """
        if earlier is None or not earlier.rewritten:
            return self
        loses = bool(self.rewritten) and not _widens(earlier.text, self.text)
        using = self.using or earlier.using or loses
        return replace(self, rewritten=self.rewritten | earlier.rewritten, using=using)

    def shape(self, publications: Collection[str]) -> TableShape:
        """The table at the position of the message, for a subscription to ``publications``."""
        found = json.loads(self.text)
        types = types_of(_rows(found["types"]))
        shape = shape_of(self.relid, _rows(found["columns"]), types)
        lists = sorted(
            (int(oid), text) for name, oid, text in found["lists"] if name in publications
        )
        return replace(shape, lists=" ".join(text for _, text in lists))


@dataclass(slots=True)
class ToldInStream:
    """What triggers tell in a stream. ``key`` is the triggers'; without a key nothing is believed.

    ``in_force`` has by relation the shape told last before the Relation message in force;
    ``_waiting`` are shapes that no Relation message has followed yet.
    """

    key: str = ""
    in_force: dict[int, CapturedShape] = field(default_factory=dict)
    _waiting: dict[int, CapturedShape] = field(default_factory=dict)
    _warned: bool = False

    def copy(self) -> ToldInStream:
        """Copy: a batch moves one on, and the other is kept if the batch fails."""
        return ToldInStream(self.key, dict(self.in_force), dict(self._waiting), self._warned)

    def hear(self, content: bytes, xid: int, lsn: LSN) -> CapturedShape | None:
        """Take up a message of a transaction; None if no trigger of pgsub made the message."""
        if not self.key:
            return None
        shape = captured(content, self.key, xid, lsn)
        if shape is None:
            if not self._warned:
                self._warned = True
                log.warning(
                    "action=untrusted_message lsn=%s a logical message with the prefix of pgsub's "
                    "event triggers was made by somebody else, and is left alone",
                    lsn,
                )
            return None
        shape = shape.after(self._waiting.get(shape.relid))
        self._waiting[shape.relid] = shape
        return shape

    def announce(self, relid: int, *, changed: bool) -> CapturedShape | None:
        """A Relation message came, other than the one before or not; return what is new.

        Behind a message with other columns, and without a message of triggers, no shape counts.
        """
        shape = self._waiting.pop(relid, None)
        if shape is not None:
            self.in_force[relid] = shape
        elif changed:
            self.in_force.pop(relid, None)
        return shape


def seal(key: str, text: bytes) -> bytes:
    """The digest that a message begins with, as the function of the triggers makes it."""
    inner = hashlib.sha256(key.encode() + text).hexdigest()
    return hashlib.sha256((key + inner).encode()).hexdigest().encode()


def captured(content: bytes, key: str, xid: int, lsn: LSN) -> CapturedShape | None:
    """Read a message of transaction ``xid``; None for one that no trigger of pgsub made in it."""
    own, body = content[:_SEAL], content[_SEAL:]
    if not hmac.compare_digest(own, seal(key, body)):
        return None
    try:
        text = body.decode()
        found = json.loads(text)
        if found["version"] != _VERSION or found["xid"] != xid:
            return None
        rewritten, using = int(found["rewritten"]), bool(found["using"])
        shape = CapturedShape(int(found["relid"]), rewritten, using, text, lsn)
        shape.shape(())
    except (ValueError, TypeError, KeyError, IndexError, ProtocolViolation):
        return None
    return shape


def check_rewritten(told: CapturedShape | None, *, retyped: bool) -> None:
    """Raise ``CannotFollow`` if rows have other values, and not by a type that holds more."""
    if told is None or not told.rewritten:
        return
    if told.using or told.rewritten & _COMPUTED or not retyped:
        raise CannotFollow("The publisher has computed values of the rows that are there anew.")


def _widens(earlier: str, later: str) -> bool:
    """Have the columns of both contents one type each, or one that holds more?"""
    before, now = ({row[0]: row[2] for row in json.loads(e)["columns"]} for e in (earlier, later))
    pairs = {(before[number], now[number]) for number in before.keys() & now.keys()}
    return all(was == typid or not typid or (was, typid) in PROMOTED for was, typid in pairs)


def _rows(rows: Sequence[Sequence[Any]]) -> list[Row]:
    """Rows as a connection returns them."""
    return [tuple(map(_text, row)) for row in rows]


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "t" if value else "f"
    return str(value)
