import pytest
from hypothesis import given
from hypothesis import strategies as st

from subscriber.sql.tokens import Kind, fold, tokens, truncate

W, N, S, I, Y, B = Kind.WORD, Kind.NAME, Kind.STRING, Kind.NUMBER, Kind.SYMBOL, Kind.BAD  # noqa: E741  # a table's column heads


operators = ["=", "-", "==", "=>", "@-", "<=", "::", ":=", "..", ":"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Abc É_$1 a\u00a0b", [(W, "abc"), (W, "É_$1"), (W, "a\u00a0b")]),
        ('"A ""b"""', [(N, 'A "b"')]),
        ("'it''s' '\\n'", [(S, "it's"), (S, "\\n")]),
        ("E'\\'\\n\\\\\\x41\\101\\u00e9\\U0001F600\\q'''", [(S, "'\n\\AAé😀q'")]),
        ("e'\\uD83D\\uDE00\\xc3\\xa9'", [(S, "😀é")]),
        ("$$a'b$$ $t$ $$ $t$", [(S, "a'b"), (S, " $$ ")]),
        ("'a' -- c\n'b'\r'c'", [(S, "abc")]),
        ("'a' 'b'", [(S, "a"), (S, "b")]),
        ("'a' /* \n */ 'b'", [(S, "a"), (S, "b")]),
        ("'a'\nE'b'", [(S, "a"), (S, "b")]),
        ("1 007 1_000 0x1F 0b11 2147483648", [(I, n) for n in (1, 7, 1000, 31, 3, "2147483648")]),
        ("1.5 .5 5. 1e5 1E-5", [(I, n) for n in ("1.5", ".5", "5.", "1e5", "1E-5")]),
        ("a=-1", [(W, "a"), (Y, "="), (Y, "-"), (I, 1)]),
        (
            " ".join(operators),
            [(Y, s) for s in operators],
        ),
        ("a=--1\n2", [(W, "a"), (Y, "="), (I, 2)]),
        ("a /* b /* c */ d */ e", [(W, "a"), (W, "e")]),
        ("$1 $x", [(Y, "$1"), (Y, "$"), (W, "x")]),
        ("refresh; refresh publication", [(W, "refresh"), (Y, ";"), (W, "refresh")]),
        ("begin show tables", [(W, "begin"), (W, "show"), (W, "tables")]),
        ("a 'b", [(W, "a"), (B, "'b")]),
        ("E'\\", [(B, "E'\\")]),
        ("12ab c", [(B, "12ab")]),
        ("{# a #} b", [(B, "{")]),
        ("X'1f' b", [(B, "X'1f'")]),
    ],
)
def test_tokens(text: str, found: list[tuple[Kind, str | int]]) -> None:
    got = [(token.kind, token.value) for token in tokens(text)]
    assert got[: len(found)] == found
    last = got[-1][0]
    assert last is (B if found[-1][0] is B else Kind.END)


@given(st.text("aE'\"$x\\ \n-/*1._e;=\u00e9") | st.text())
def test_tokens_stand_in_the_text_one_after_the_other(text: str) -> None:
    at = 0
    found = list(tokens(text))
    for token in found:
        assert token.start >= at
        assert text[token.start : token.end] == token.text
        at = token.end
    assert found[-1].kind in (Kind.END, Kind.BAD)
    assert {token.kind for token in found[:-1]}.isdisjoint({Kind.END, Kind.BAD})


def test_only_ascii_is_folded() -> None:
    assert fold("ÄBCİ") == "Äbcİ"


def test_a_name_is_cut_between_characters() -> None:
    assert truncate("a" * 63) == "a" * 63
    assert truncate("a" * 64) == "a" * 63
    assert truncate("a" + "日" * 30) == "a" + "日" * 20
