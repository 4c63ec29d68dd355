"""Statements as values: equal by what was asked, and silent about connection strings."""

from config.statements import AlterConnection, CreateSubscription, DefElem


def test_no_representation_holds_a_connection_string() -> None:
    secret = "host=a password=hidden"
    for statement in (
        CreateSubscription("s", secret, ("p",)),
        AlterConnection("s", secret),
    ):
        assert "hidden" not in repr(statement)


def test_an_option_is_the_same_wherever_it_stands() -> None:
    assert DefElem("copy_data", "off", location=10) == DefElem("copy_data", "off", location=99)
    assert DefElem("copy_data", "off") != DefElem("copy_data")
