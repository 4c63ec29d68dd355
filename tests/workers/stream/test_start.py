"""Starting to stream: what a publisher's refusal tells the operator to do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from catalog.errcodes import Policy, ReplicationError, ReplicationGap, policy
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Stream as Streaming
from catalog.pg_subscription import Subscription
from workers.publisher.binary_columns import requires_binary
from workers.publisher.connect import parse_conninfo
from workers.publisher.interfaces import Row
from workers.publisher.second_connection import ask_identities
from workers.stream.start import start_options, starting_on_slot

SUB = Subscription(
    "my sub", "host=db", ("pub",), subslotname="my_sub", max_flush_lsn=LSN.parse("0/19BD9E8")
)


@dataclass(slots=True)
class SlotTwin:
    """A publisher with one slot, or none, or one that cannot be asked any more."""

    slot: Row | None = None
    broken: ReplicationError | None = None
    asked: list[str] = field(default_factory=list)
    server_version: int = 18

    def exec(self, sql: str) -> list[Row]:
        self.asked.append(sql)
        if self.broken:
            raise self.broken
        return [self.slot] if self.slot else []


def held(active: str = "f", pid: str | None = None, status: str | None = "reserved") -> Row:
    validity = (status, "wal_removed" if status == "lost" else None, "false")
    return ("pgoutput", "logical", "shop", active, pid, "0/19BD9E8", "shop", *validity)


def refused(conn: SlotTwin, code: str, primary: str = "refused") -> ReplicationError:
    with pytest.raises(ReplicationError) as caught, starting_on_slot(conn, SUB, "my_sub", 5.0):
        raise ReplicationError(primary, detail="as it was", hint="the publisher's", sqlstate=code)
    assert (caught.value.code, caught.value.primary) == (code, primary)
    assert caught.value.detail == "as it was"
    return caught.value


@pytest.mark.parametrize(
    ("conn", "code"),
    [(SlotTwin(None), "42704"), (SlotTwin(held(status="lost")), "55000")],
    ids=["dropped", "invalidated"],
)
def test_a_slot_that_is_lost_means_copying_again(conn: SlotTwin, code: str) -> None:
    error = refused(conn, code)
    assert isinstance(error, ReplicationGap)
    assert "committed after 0/19BD9E8 is lost" in (error.hint or "")
    assert "pgsub refresh 'my sub' --recopy" in (error.hint or "")
    assert "pgsub accept-gap 'my sub'" in (error.hint or "")


def test_a_slot_that_is_held_is_tried_again() -> None:
    error = refused(SlotTwin(held("t", "4711")), "55006", 'slot "x" is active for PID 4711')
    assert error.hint is not None
    assert error.hint.startswith("The worker tries again every 5s (wal_retrieve_retry_interval).")
    assert "process 4711 of the publisher" in error.hint
    assert policy(error.code) is Policy.RETRY


@pytest.mark.parametrize(
    ("conn", "code"),
    [
        (SlotTwin(held()), "55000"),
        (SlotTwin(held(status=None)), "55000"),
        (SlotTwin(broken=ReplicationError("lost", sqlstate="08006")), "42704"),
        (SlotTwin(None), "08006"),
    ],
    ids=["another prerequisite", "before 13", "cannot be asked", "connection"],
)
def test_other_errors_stay_as_they_are(conn: SlotTwin, code: str) -> None:
    error = refused(conn, code)
    assert error.hint == "the publisher's"
    assert not isinstance(error, ReplicationGap)


@pytest.mark.parametrize("version", [19, 18, 16, 15, 14, 13])
def test_s_014_5_binary_is_asked_for_behind_all_else(version: int) -> None:
    """True, false and true again; who starts the stream knows whether there is such an option."""
    sub = replace(SUB, subbinary=True, suborigin="none")
    asked, plain = start_options(sub, version, binary=True), start_options(sub, version)
    assert list(asked.items()) == [*plain.items(), ("binary", "true")]
    assert "binary" not in plain


@pytest.mark.parametrize("mode", list(Streaming))
@pytest.mark.parametrize(
    ("version", "proto"),
    [(19, "4"), (18, "4"), (17, "4"), (16, "4"), (15, "3"), (14, "2"), (13, "1")],
)
def test_h_27_what_the_publisher_knows_is_asked_for(
    mode: Streaming, version: int, proto: str
) -> None:
    """H-27: the version of the protocol is the publisher's; parallel is asked for as on."""
    options = start_options(replace(SUB, substream=mode), version)
    assert options["proto_version"] == proto
    asked = mode is not Streaming.OFF and version >= 14
    assert list(options)[1] == ("streaming" if asked else "publication_names")
    assert options.get("streaming", "on") == "on"


@pytest.mark.parametrize(("version", "known"), [(18, True), (14, True), (13, False)])
def test_logical_messages_are_asked_for_where_wanted_and_known(version: int, known: bool) -> None:
    plain = start_options(SUB, version)
    asked = start_options(SUB, version, messages=True)
    assert (asked.get("messages"), "messages" in plain) == ("true" if known else None, False)


def test_what_is_rolled_back_to_a_savepoint_is_not_sent_where_messages_are_asked_for() -> None:
    """The publisher sends a message of a savepoint as one of the whole transaction."""
    assert "streaming" in start_options(SUB, 18)
    assert "streaming" not in start_options(SUB, 18, messages=True)


@pytest.mark.parametrize(("version", "known"), [(18, True), (14, True), (13, False)])
def test_014_an_older_publisher_does_not_know_the_option(version: int, known: bool) -> None:
    assert requires_binary(replace(SUB, subbinary=True), version) is known
    assert not requires_binary(SUB, version)


class Reached(SlotTwin):
    """A connection of several hosts that reached the second."""

    closed = False

    def host(self) -> dict[str, str]:
        return {"host": "db2", "hostaddr": "10.0.0.2", "port": "5433"}

    def close(self) -> None:
        self.closed = True


def test_identities_are_asked_of_the_host_that_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another of the hosts may be a standby that does not know yet what they are."""
    several = "host=db1,db2 port=5432,5433 dbname=shop target_session_attrs=standby"
    asked, conninfos = Reached(("7", "id", "t")), []

    def connect(conninfo: str, *_: Any, **how: Any) -> Reached:
        conninfos.append(parse_conninfo(conninfo))
        assert how["replication"] is False
        return asked

    monkeypatch.setattr("workers.publisher.connect.connect", connect)
    streaming: Any = Reached()
    found = ask_identities(replace(SUB, subconninfo=several), streaming, lambda: False, [7])
    assert (found, asked.closed) == ({7: {"id": True}}, True)
    assert conninfos == [{**streaming.host(), "dbname": "shop"}]
