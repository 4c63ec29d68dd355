"""The group files of prepared transactions: whole or not there, and read as they were written."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from workers.stream.prepared_groups import (
    GONE,
    Ended,
    GroupWriter,
    Kept,
    PreparedXact,
    group_path,
    groups_in,
    read_group,
)

XACT = PreparedXact("a name", 7, LSN(99), LSN(100), 5, 3, (b"\0R", b"R\n"), binary=True)
NEXT = replace(XACT, gid="next", xid=8, skipped=True)


def written(folder: Path) -> list[Kept]:
    writer = GroupWriter(folder, 3)
    made = [
        writer.add("mine", XACT, 9, [b"\n\n", memoryview(b"records")]),
        writer.add("other", NEXT, 0, []),
    ]
    assert groups_in(folder) == [], "a group without all records has no name"
    writer.end()
    return made


def test_a_group_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = written(tmp_path)
    assert list(read_group(tmp_path, 3)) == made
    assert [(each.name, each.xact) for each in made] == [("mine", XACT), ("other", NEXT)]
    start, size = made[0].start, made[0].size
    assert group_path(tmp_path, 3).read_bytes()[start : start + size] == b"\n\nrecords"


def test_groups_are_found_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("group_10", "group_9", "group_11.new", "ended", "group_"):
        (tmp_path / name).touch()
    assert groups_in(tmp_path) == [9, 10]
    assert groups_in(tmp_path / "no folder") == []


def test_a_group_that_was_removed_meanwhile_has_no_transaction(tmp_path: Path) -> None:
    assert list(read_group(tmp_path, 3)) == []


@pytest.mark.parametrize(
    "damage",
    [b'{"gid": "secret"}\n', b"secret", b'["secret"]\n', b'{"name": "secret", "size": "x"}'],
)
def test_a_damaged_group_is_an_error_that_shows_no_value(tmp_path: Path, damage: bytes) -> None:
    group_path(tmp_path, 1).write_bytes(damage)
    with pytest.raises(ReplicationError) as caught:
        list(read_group(tmp_path, 1))
    is_told(caught.value)


def is_told(error: ReplicationError) -> None:
    assert error.code == "58030"
    assert error.primary.startswith("could not read prepared transactions")
    assert "secret" not in error.report()


def test_so_is_a_group_that_lost_its_end(tmp_path: Path) -> None:
    writer = GroupWriter(tmp_path, 1)
    writer.add("mine", XACT, 6, [b"secret"])
    writer.end()
    os.truncate(group_path(tmp_path, 1), group_path(tmp_path, 1).stat().st_size - 1)
    with pytest.raises(ReplicationError) as caught:
        list(read_group(tmp_path, 1))
    is_told(caught.value)


def test_ends_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert Ended.read(tmp_path) == Ended()
    ended = Ended(LSN(900), {7: {755: 1_000, 757: GONE}, 9: {}})
    ended.write(tmp_path)
    assert Ended.read(tmp_path) == ended
    assert os.listdir(tmp_path) == ["ended"]


@pytest.mark.parametrize("damage", [b'{"secret": 1}', b"secret", b"[]", b'{"finished": 1}'])
def test_damaged_ends_are_an_error(tmp_path: Path, damage: bytes) -> None:
    """Without the ends, transactions that are gone would be prepared."""
    (tmp_path / "ended").write_bytes(damage)
    with pytest.raises(ReplicationError) as caught:
        Ended.read(tmp_path)
    is_told(caught.value)
    assert f'Or remove the whole directory "{tmp_path}".' in (caught.value.hint or "")
