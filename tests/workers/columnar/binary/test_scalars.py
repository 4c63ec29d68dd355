"""The text of every kind of scalar value."""

from __future__ import annotations

import struct

import pytest

from tests.workers.columnar.binary.sent_values import TEXT, check_damaged, texts
from workers.columnar.binary import scalars as scalars

DAMAGED: list[tuple[int, bytes, str]] = [
    (16, b"", "08P01"),
    (3802, b"\2{}", "22P03"),
    (3802, b"", "08P01"),
    (869, b"\2\x21\0\4\1\2\3\4", "22P03"),
    (869, b"\7\x20\0\4\1\2\3\4", "22P03"),
    (869, b"\2\x20\0\4\1\2\3", "08P01"),
    (1562, struct.pack(">i", 9) + b"\0", "08P01"),
    (1562, b"\xff\xff\xff\xff", "22P03"),
    (604, struct.pack(">i", 2) + b"\0" * 16, "08P01"),
]


@pytest.mark.parametrize(("oid", "sent", "sqlstate"), DAMAGED)
def test_014_a_damaged_value_has_postgresql_s_error(oid: int, sent: bytes, sqlstate: str) -> None:
    check_damaged(oid, sent, sqlstate)


def doubles(*numbers: float) -> bytes:
    return struct.pack(f">{len(numbers)}d", *numbers)


def inet6(*words: int, bits: int = 128) -> bytes:
    return bytes([3, bits, 0, 16]) + struct.pack(">8H", *words)


@pytest.mark.parametrize(
    ("oid", "sent", "text"),
    [
        (TEXT, "Größe".encode(), "Größe"),
        (16, b"\1", "t"),
        (16, b"\0", "f"),
        (17, b"\0\xff'", "\\x00ff27"),
        (18, b"x", "x"),
        (18, b"\xff", "\\377"),
        (18, b"\0", ""),
        (26, b"\xff\xff\xff\xff", "4294967295"),
        (27, b"\0\0\0\7\0\2", "(7,2)"),
        (3802, b'\1{"a": 1}', '{"a": 1}'),
        (2950, bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (829, b"\x08\0\x2b\1\2\3", "08:00:2b:01:02:03"),
        (774, b"\x08\0\x2b\1\2\3\4\xff", "08:00:2b:01:02:03:04:ff"),
        (3220, b"\0\0\0\x1a\0\0\xbe\xef", "1A/BEEF"),
        (5069, b"\xff" * 8, "18446744073709551615"),
        (1562, b"\0\0\0\x0b\xaa\xe0", "10101010111"),
        (869, b"\2\x20\0\4\x7f\0\0\1", "127.0.0.1"),
        (869, b"\2\x18\0\4\x0a\1\2\3", "10.1.2.3/24"),
        (650, b"\2\x20\1\4\x0a\1\2\3", "10.1.2.3/32"),
        (869, inet6(0, 0, 0, 0, 0, 0, 0, 1), "::1"),
        (869, inet6(0x2001, 0xDB8, 0, 0, 1, 0, 0, 1, bits=64), "2001:db8::1:0:0:1/64"),
        (869, inet6(0, 0, 0, 0, 0, 0xFFFF, 0x0A01, 0x0203), "::ffff:10.1.2.3"),
        (600, doubles(1.5, -2), "(1.5,-2)"),
        (601, doubles(1, 2, 3, 4), "[(1,2),(3,4)]"),
        (603, doubles(3, 4, 1, 2), "(3,4),(1,2)"),
        (628, doubles(1, -2, 3.5), "{1,-2,3.5}"),
        (718, doubles(1, 2, 3.5), "<(1,2),3.5>"),
        (602, b"\1\0\0\0\1" + doubles(1, 2), "((1,2))"),
        (602, b"\0\0\0\0\1" + doubles(1, 2), "[(1,2)]"),
        (604, b"\0\0\0\2" + doubles(1, 2, 3, 4), "((1,2),(3,4))"),
    ],
)
def test_a_scalar_is_printed_as_postgresql_prints_it(oid: int, sent: bytes, text: str) -> None:
    assert texts(oid, sent, None, sent) == [text, None, text]


def test_kinds_have_one_number_each() -> None:
    numbers = [n for name, n in vars(scalars).items() if name.isupper() and name[0] != "_"]
    assert len(numbers) > 30
    kinds = [n for n in numbers if isinstance(n, int)]
    assert sorted(set(kinds)) == list(range(1, 35))
