"""The relation of logical messages cannot be taken for a published table."""

from __future__ import annotations

from catalog.namespace import MESSAGES_TABLE
from workers.columnar.binary.forms import FIRST_NORMAL_OID, form_of
from workers.proto import decode, encode
from workers.proto.message_rows import MESSAGES


def test_no_table_of_a_user_has_its_oid_or_its_schema() -> None:
    assert MESSAGES.relid < FIRST_NORMAL_OID
    assert (MESSAGES.nspname, MESSAGES.relname) == MESSAGES_TABLE
    assert MESSAGES_TABLE[0] == "pg_catalog"


def test_a_file_of_a_prepared_transaction_can_hold_it() -> None:
    assert decode.message(encode.message(MESSAGES)) == MESSAGES


def test_its_values_can_be_read_in_binary_form_without_a_question() -> None:
    assert all(form_of(column.typid, {}) is not None for column in MESSAGES.columns)
    assert not any(column.key for column in MESSAGES.columns)
