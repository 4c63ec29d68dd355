import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import SyncSlot
from config.load import parse
from config.sqloptions import CREATE_OPTIONS, create_statement
from config.statements import CreateSubscription, DefElem
from config.subscription import CreateSubscriptionStmt

VALUES = [None, 0, 1, 2, "", "a_slot", "Bad", "maybe", "true", "False", "on", "off", "parallel"]
VALUES += ["any", "none", "local", "remote_write", "remote_apply"]


def in_sql(options: dict[str, Any]) -> CreateSubscriptionStmt:
    elements = tuple(DefElem(*option) for option in options.items())
    return create_statement(CreateSubscription("mysub", "host=db", ("p", "q"), elements))


def in_yaml(options: dict[str, Any]) -> CreateSubscriptionStmt:
    body = {"connection": "host=db", "publication": ["p", "q"], "with": options}
    return parse(json.dumps({"subscriptions": {"mysub": body}}), "f.yaml").subscriptions[0]


@given(
    st.dictionaries(st.sampled_from(sorted(CREATE_OPTIONS)), st.sampled_from(VALUES), max_size=3)
)
def test_sql_and_yaml_mean_the_same(options: dict[str, Any]) -> None:
    try:
        wanted = in_sql(options)
    except ReplicationError as error:
        refused = error
    else:
        assert in_yaml(options) == wanted
        return
    with pytest.raises(ReplicationError) as caught:
        in_yaml(options)
    # YAML names all mistakes at once, SQL the first.
    assert refused.primary in f"{caught.value.primary} {caught.value.detail}"
    assert caught.value.detail or caught.value.code == refused.code


def test_what_sql_has_no_words_for() -> None:
    stmt = in_sql({})
    assert (stmt.tables, stmt.password_env, stmt.sync_slot) == ({}, None, SyncSlot.TEMPORARY)
    assert stmt == in_yaml({})
