from typing import Any

import pytest

from catalog.errcodes import ConfigFileError
from catalog.pg_subscription import Stream, SyncSlot
from config.load import parse
from config.subscription import CreateSubscriptionStmt

BODY = "connection: host=db\n    publication: [pub]\n"


def statement(with_: str = "{}", more: str = "", name: str = "mysub") -> CreateSubscriptionStmt:
    text = f"subscriptions:\n  {name}:\n    {BODY}    with: {with_}\n{more}"
    return parse(text, "f.yaml").subscriptions[0]


def refused(with_: str = "{}", more: str = "", name: str = "mysub") -> ConfigFileError:
    with pytest.raises(ConfigFileError) as caught:
        statement(with_, more, name)
    return caught.value


def test_defaults_are_those_of_version_18() -> None:
    stmt = statement()
    opts = stmt.options
    assert (opts.connect, opts.create_slot, opts.enabled, opts.copy_data) == (True,) * 4
    assert (opts.slot_name, opts.synchronous_commit, opts.origin) == ("mysub", "on", "any")
    assert (opts.binary, opts.two_phase, opts.disable_on_error) == (False,) * 3
    assert (opts.password_required, opts.run_as_owner, opts.failover) == (True, False, False)
    assert opts.streaming is Stream.PARALLEL
    assert stmt.sync_slot is SyncSlot.TEMPORARY
    assert opts.specified == frozenset()


@pytest.mark.parametrize(
    ("value", "stream"),
    [("on", "t"), ("off", "f"), ("parallel", "p"), ("Parallel", "p"), ("", "t"), ("1", "t")],
)
def test_streaming(value: str, stream: str) -> None:
    assert statement(f"{{streaming: {value}}}").options.streaming == stream


@pytest.mark.parametrize(
    ("option", "attribute", "value"),
    [
        ("origin: NONE", "origin", "none"),
        ("synchronous_commit: remote_write", "synchronous_commit", "remote_write"),
        ("synchronous_commit: off", "synchronous_commit", "off"),
        ("disable_on_error: ", "disable_on_error", True),
        ('copy_data: "off"', "copy_data", False),
        ("failover: 1", "failover", True),
        ("slot_name: other_1", "slot_name", "other_1"),
    ],
)
def test_option_values(option: str, attribute: str, value: Any) -> None:
    opts = statement(f"{{{option}}}").options
    assert getattr(opts, attribute) == value
    assert opts.specified == {attribute}


def test_connect_false_turns_other_defaults_off() -> None:
    opts = statement("{connect: false}").options
    assert (opts.enabled, opts.create_slot, opts.copy_data) == (False, False, False)
    assert opts.slot_name == "mysub"


def test_slot_name_none() -> None:
    opts = statement("{slot_name: NONE, enabled: false, create_slot: false}").options
    assert opts.slot_name is None


@pytest.mark.parametrize(
    ("with_", "sqlstate", "said"),
    [
        ("{copy_data: true, copy_data: true}", "42601", "conflicting or redundant options"),
        ("{nosuch: 1}", "42601", 'unrecognized subscription parameter: "nosuch"'),
        ("{refresh: true}", "42601", 'unrecognized subscription parameter: "refresh"'),
        (
            "{connect: false, enabled: true}",
            "42601",
            "connect = false and enabled = true are mutually exclusive options",
        ),
        (
            "{connect: false, create_slot: true}",
            "42601",
            "connect = false and create_slot = true are mutually exclusive options",
        ),
        (
            "{connect: false, copy_data: true}",
            "42601",
            "connect = false and copy_data = true are mutually exclusive options",
        ),
        (
            "{slot_name: NONE, enabled: true, create_slot: true}",
            "42601",
            "slot_name = NONE and enabled = true are mutually exclusive options",
        ),
        (
            "{slot_name: NONE}",
            "42601",
            "subscription with slot_name = NONE must also set enabled = false",
        ),
        (
            "{slot_name: NONE, enabled: false, create_slot: true}",
            "42601",
            "slot_name = NONE and create_slot = true are mutually exclusive options",
        ),
        (
            "{slot_name: NONE, enabled: false}",
            "42601",
            "subscription with slot_name = NONE must also set create_slot = false",
        ),
        ("{origin: some}", "22023", 'unrecognized origin value: "some"'),
        ("{streaming: maybe}", "42601", 'streaming requires a Boolean value or "parallel"'),
        ("{streaming: 2}", "42601", 'streaming requires a Boolean value or "parallel"'),
        ("{enabled: perhaps}", "42601", "enabled requires a Boolean value"),
        ("{enabled: [1]}", "42601", "enabled requires a Boolean value"),
        (
            "{synchronous_commit: never}",
            "22023",
            'invalid value for parameter "synchronous_commit": "never"',
        ),
        ("{slot_name: }", "42601", "slot_name requires a parameter"),
        ("{slot_name: [a]}", "42601", "slot_name requires a name"),
        ("{slot_name: Bad}", "42602", 'replication slot name "Bad" contains invalid character'),
    ],
)
def test_refused_options(with_: str, sqlstate: str, said: str) -> None:
    error = refused(with_)
    assert error.code == sqlstate
    assert error.primary.endswith(f": {said}")
    assert error.primary.startswith('configuration file "f.yaml", line 5, key "subscriptions.mysub')


def test_publication_named_twice() -> None:
    text = "subscriptions:\n  s:\n    connection: ''\n    publication: [a, b, a]\n"
    with pytest.raises(ConfigFileError, match='"a" used more than once') as caught:
        parse(text, "f.yaml")
    assert caught.value.code == "42710"


def test_name_that_is_no_slot_name() -> None:
    assert refused(name="MySub").code == "42602"
    assert statement("{slot_name: mysub}", name="MySub").name == "MySub"
    assert refused("{slot_name: x}", name="s" * 64).code == "42622"


def test_password_is_split_off() -> None:
    text = "subscriptions: {s: {connection: host=db password=secret, publication: p}}"
    stmt = parse(text, "f.yaml").subscriptions[0]
    assert (stmt.connection.text, stmt.connection.password) == ("host=db", "secret")
    assert "secret" not in repr(stmt)


def test_two_passwords() -> None:
    text = "subscriptions: {s: {connection: password=secret, password_env: X, publication: p}}"
    with pytest.raises(ConfigFileError, match="exclusive") as caught:
        parse(text, "f.yaml")
    assert caught.value.code == "42601"
    assert "secret" not in caught.value.report()


def test_permanent_sync_slot() -> None:
    assert statement(more="    sync_slot: permanent\n").sync_slot is SyncSlot.PERMANENT


def test_messages_go_to_a_table_that_no_other_table_has() -> None:
    more = "    messages_to: audit.said\n    tables: {public.a: {to: audit.said}}"
    error = refused(more=more)
    assert error.code == "42P07"
    assert "mapped to lake table" in str(error)
    assert statement().tables == {}
    found = statement(more="    messages_to: audit.said").tables
    assert [(name, options.to) for name, options in found.items()] == [
        ("pg_catalog.pg_logical_emit_message", ("audit", "said"))
    ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("    messages_to: said", 'invalid table name: "said"'),
        ("    messages_to: pg_catalog.said", 'permission denied to create "pg_catalog.said"'),
        (
            "    tables: {pg_catalog.pg_logical_emit_message: {}}",
            "is the table of logical messages",
        ),
        (
            "    messages_to: b.c\n    tables: {pg_catalog.pg_logical_emit_message: {to: a.b}}",
            'cannot have "to"',
        ),
    ],
)
def test_wrong_messages_to(more: str, said: str) -> None:
    assert said in str(refused(more=more))
