"""Messages of the publisher's event triggers, sealed as the triggers' function seals them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from catalog.pg_lsn import LSN
from tests.workers.transactions import batch
from workers.changes.captured_shape import seal
from workers.proto.message_rows import DDL_PREFIX
from workers.proto.messages import LogicalMessage, Message
from workers.stream.batch import Batch

KEY: Final = "key of the triggers"


def sealed(found: dict[str, Any], xid: int = 1, key: str = KEY) -> LogicalMessage:
    """A message in transaction ``xid``."""
    body = json.dumps({**found, "xid": xid}).encode()
    return LogicalMessage(True, LSN(1), DDL_PREFIX, seal(key, body) + body)


def of_transaction(message: LogicalMessage, xid: int) -> LogicalMessage:
    """The message as it is in transaction ``xid``."""
    return sealed(json.loads(message.content[64:]), xid)


def told_batch(*transactions: Sequence[Message], after: int = 0) -> Batch:
    """Transactions 1, 2, … whose messages of triggers are in them."""
    own = [
        [of_transaction(e, xid) if isinstance(e, LogicalMessage) else e for e in messages]
        for xid, messages in enumerate(transactions, start=1)
    ]
    return batch(*own, after=after)
