"""What a subscriber and its publisher say to each other, recorded by the proxy."""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass, field

from catalog.pg_lsn import LSN
from workers.proto import decode
from workers.proto.messages import PrimaryKeepalive


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that was said.

    ``query`` (its text), ``row`` (values of an answer), ``data`` (of a COPY), ``keepalive``
    (position, whether a reply is asked for), ``change`` (a streamed message's letter), ``status``
    (write, flush and apply position, whether a reply is asked for), ``done`` (the client ends a
    COPY), ``terminate``.
    """

    kind: str
    values: tuple[str | None, ...] = ()


@dataclass(slots=True)
class Conversation:
    """A connection: the parameters it began with, and what was said on it, in order."""

    startup: dict[str, str]
    said: list[Said] = field(default_factory=list)
    streaming: bool = False


class WireTrace:
    """Listens at a ``Proxy`` (it is its ``watch``); ``conversations`` by order of connecting."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_number: dict[int, Conversation] = {}

    def __call__(self, number: int, of_client: bool, message: bytes) -> None:
        with self._lock:
            talk = self._by_number.get(number)
            if talk is None:
                self._by_number[number] = Conversation(_parameters(message[8:]))
                return
            if message[:1] == b"W":  # CopyBothResponse
                talk.streaming = True
            read = _of_client if of_client else _of_server
            said = read(message[:1], message[5:], talk.streaming)
            if said is not None:
                talk.said.append(said)

    @property
    def conversations(self) -> list[Conversation]:
        """All of them, by order of connecting."""
        with self._lock:
            return [
                Conversation(dict(talk.startup), list(talk.said), talk.streaming)
                for _, talk in sorted(self._by_number.items())
            ]


def _parameters(packet: bytes) -> dict[str, str]:
    words = [word.decode() for word in packet.split(b"\0")]
    return dict(zip(words[::2], words[1::2], strict=False))


def _of_client(kind: bytes, body: bytes, streaming: bool) -> Said | None:
    if kind == b"Q":
        return Said("query", (body[:-1].decode(),))
    if kind == b"d" and streaming and body[:1] == b"r":
        *positions, _, reply = struct.unpack(">QQQqB", body[1:])
        return Said("status", (*(str(LSN(each)) for each in positions), str(reply)))
    return {b"c": Said("done"), b"X": Said("terminate")}.get(kind)


def _of_server(kind: bytes, body: bytes, streaming: bool) -> Said | None:
    if kind == b"D":
        return Said("row", _row(body))
    if kind != b"d":
        return None
    if not streaming:
        return Said("data", (body.decode(errors="replace"),))  # of a COPY, text or not
    message = decode.copy_data(body)
    if isinstance(message, PrimaryKeepalive):
        return Said("keepalive", (str(message.end_lsn), str(int(message.reply_requested))))
    return Said("change", (chr(message.data[0]),)) if message is not None else None


def _row(body: bytes) -> tuple[str | None, ...]:
    values: list[str | None] = []
    at = 2
    while at < len(body):
        size = struct.unpack_from(">i", body, at)[0]
        at += 4
        values.append(None if size < 0 else body[at : at + size].decode())
        at += max(size, 0)
    return tuple(values)
