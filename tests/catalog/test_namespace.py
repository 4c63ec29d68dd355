import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errcodes import InvalidName
from catalog.namespace import (
    escape_identifier,
    printable,
    qualified_name,
    quote_identifier,
    quote_literal,
    quote_qualified_identifier,
    string_to_qualified_name,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("public.orders", ("public", "orders")),
        ("Sales.Order Lines", ("Sales", "Order Lines")),
        ('"a.b".c', ("a.b", "c")),
        ('a."b""c.d"', ("a", 'b"c.d')),
    ],
)
def test_split(text: str, names: tuple[str, str]) -> None:
    assert string_to_qualified_name(text) == names


@pytest.mark.parametrize(
    "text", ["", "orders", ".orders", "public.", "a.b.c", '"a.b', 'a."b"c', '"".b', 'a.""', 'a"b.c']
)
def test_not_a_qualified_name(text: str) -> None:
    with pytest.raises(InvalidName):
        string_to_qualified_name(text)


@given(NAMES, NAMES)
def test_split_is_the_inverse_of_join(schema: str, name: str) -> None:
    assert string_to_qualified_name(qualified_name(schema, name)) == (schema, name)


def test_quoting() -> None:
    assert quote_identifier('tab"le') == '"tab""le"'
    assert escape_identifier("tab") == '"tab"'
    assert quote_qualified_identifier("a", "B c") == 'a."B c"'
    assert quote_literal("it's") == "'it''s'"
    assert quote_literal("a\\b'c") == "E'a\\\\b''c'"
    with pytest.raises(InvalidName):
        quote_literal("a\0b")


def test_a_name_does_not_steer_a_terminal() -> None:
    assert printable("a\x1b[2J\rb\x9b\u202ec") == "a\\x1B[2J\\x0Db\\x9B\\u202Ec"
    assert printable("ünï🙂\n\t\\") == "ünï🙂\n\t\\"
