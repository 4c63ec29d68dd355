"""A fault of the publisher that ends a seed: the log cannot be decoded any more.

A walsender finds a table by the number of the table's file, and finds two rows of ``pg_class`` with
the number (``RelidByRelfilenumber``, XX000). No walsender of the slot comes past the place. The
publisher is asked: the slot is read by SQL, without pgsub. A slot that can be read proves nothing:
the seed has failed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import psycopg

from tests.fix_publisher import Database
from tests.waiting import wait_until

_PEEK: Final = (
    "SELECT count(*) FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL,"
    " 'proto_version', '4', 'publication_names', %s, 'messages', 'true')"
)
_DUPLICATE: Final = re.compile(r"unexpected duplicate for tablespace \d+, relfilenumber \d+")

_PATIENCE: Final = 20.0
"""Seconds in which a worker lets go of a slot that it cannot read; between attempts it does."""


def publisher_fault(publisher: Database, slot: str, publications: Sequence[str]) -> str | None:
    """The publisher's error for the slot, if it is the known one."""
    found: psycopg.Error | None = None

    def is_read() -> bool:
        nonlocal found
        try:
            publisher.execute(_PEEK, (slot, ",".join(publications)))
        except psycopg.errors.ObjectInUse:
            return False
        except psycopg.Error as error:
            found = error
        return True

    with suppress(AssertionError):
        wait_until(is_read, _PATIENCE, "the slot is free")
    return None if found is None else known_fault(found)


def known_fault(error: psycopg.Error) -> str | None:
    """The text of the known error, None for any other."""
    text = error.diag.message_primary or ""
    return text if error.sqlstate == "XX000" and _DUPLICATE.fullmatch(text) else None
