from typing import Any

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Stream
from config.define import READERS
from config.sqloptions import CREATE_OPTIONS, PUBLICATION_OPTIONS, SET_OPTIONS, SKIP_OPTIONS

BOOLEANS = sorted(name for name, reader in READERS.items() if reader is READERS["connect"])


def test_every_option_belongs_to_a_command() -> None:
    assert set(READERS) == CREATE_OPTIONS | SET_OPTIONS | PUBLICATION_OPTIONS | SKIP_OPTIONS
    assert {"connect", "create_slot", "enabled", "copy_data"} == CREATE_OPTIONS - SET_OPTIONS
    assert len(BOOLEANS) == 11


@pytest.mark.parametrize("name", BOOLEANS)
def test_booleans(name: str) -> None:
    read = READERS[name]
    for value in (True, None, 1, "true", "TRUE", "on", "On"):
        assert read(name, value) is True
    for value in (False, 0, "false", "off", "OFF"):
        assert read(name, value) is False
    others: tuple[object, ...] = ("1", "yes", "t", "", "none", 2, -1, [], {}, 1.0)
    for other in others:
        with pytest.raises(ReplicationError, match=f"^{name} requires a Boolean value$") as caught:
            read(name, other)
        assert caught.value.code == "42601"


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("streaming", None, Stream.ON),
        ("streaming", "Parallel", Stream.PARALLEL),
        ("streaming", 0, Stream.OFF),
        ("slot_name", "none", None),
        ("slot_name", 12, "12"),
        ("slot_name", True, "true"),
        ("origin", "ANY", "any"),
        ("synchronous_commit", "Remote_Apply", "remote_apply"),
        ("synchronous_commit", 0, "off"),
        ("lsn", "none", None),
        ("lsn", "0/1", LSN(1)),
    ],
)
def test_values(name: str, value: Any, read: Any) -> None:
    assert READERS[name](name, value) == read


@pytest.mark.parametrize(
    ("name", "value", "sqlstate", "said"),
    [
        ("streaming", "paralel", "42601", 'streaming requires a Boolean value or "parallel"'),
        ("streaming", 2, "42601", 'streaming requires a Boolean value or "parallel"'),
        ("slot_name", None, "42601", "slot_name requires a parameter"),
        ("slot_name", [], "42601", "slot_name requires a name"),
        ("slot_name", "", "42602", 'replication slot name "" is too short'),
        ("origin", None, "42601", "origin requires a parameter"),
        ("origin", "some", "22023", 'unrecognized origin value: "some"'),
        ("lsn", "0/0", "22023", "invalid WAL location (LSN): 0/0"),
        ("lsn", "NONE", "22P02", 'invalid input syntax for type pg_lsn: "NONE"'),
    ],
)
def test_refused_values(name: str, value: Any, sqlstate: str, said: str) -> None:
    with pytest.raises(ReplicationError) as caught:
        READERS[name](name, value)
    assert (caught.value.code, caught.value.primary) == (sqlstate, said)
