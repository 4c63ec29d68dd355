import pytest

from subscriber.sql.error_position import DISPLAY_SIZE, excerpt


@pytest.mark.parametrize(
    ("query", "place", "shown"),
    [
        ("ab cd", 3, "LINE 1: ab cd\n           ^"),
        ("ab\ncd\nef", 3, "LINE 2: cd\n        ^"),
        ("ab\r\ncd\r\n", 5, "LINE 2: cd\n         ^"),
        ("ab\rcd", 3, "LINE 2: cd\n        ^"),
        ("ab", 2, "LINE 1: ab\n          ^"),
        ("", 0, "LINE 1: \n        ^"),
        ("a\tb\tc", 4, "LINE 1: a b c\n            ^"),
        ("日本 x", 3, "LINE 1: 日本 x\n             ^"),
        ("e\u0301 x", 3, "LINE 1: e\u0301 x\n           ^"),
    ],
)
def test_the_line_and_the_place(query: str, place: int, shown: str) -> None:
    assert excerpt(query, place) == shown


@pytest.mark.parametrize("place", [0, 20, 50, 51, 100, 199, 200])
def test_of_a_long_line_the_part_around_the_place_is_shown(place: int) -> None:
    query = "".join(chr(ord("a") + n % 26) for n in range(200))
    line, caret = excerpt(query, place).split("\n")
    assert len(line) <= len("LINE 1: ") + DISPLAY_SIZE + 6
    assert line[len(caret) - 1 : len(caret)] == query[place : place + 1]
    assert line.startswith("LINE 1: ...") is (place > 50)
    assert line.endswith("...") is (place < 190)
