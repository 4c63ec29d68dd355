"""History files as PostgreSQL writes them, and as it would not."""

import pytest

from catalog.errcodes import ProtocolViolation
from catalog.pg_lsn import LSN
from workers.publisher.timeline import (
    TimeLineHistoryEntry,
    parse_timeline_history,
    tli_switch_point,
)

FILE = """\
# a comment

1\t0/3000148\tno recovery target specified

2\tA/5000090\tbefore 2026-11-02 12:00:00+00
  \t
4\tA/6000000
"""


def test_the_timelines_and_where_each_was_left() -> None:
    history = parse_timeline_history(5, FILE)
    assert history == (
        TimeLineHistoryEntry(1, LSN.parse("0/3000148")),
        TimeLineHistoryEntry(2, LSN.parse("A/5000090")),
        TimeLineHistoryEntry(4, LSN.parse("A/6000000")),
    )
    assert tli_switch_point(2, history) == LSN.parse("A/5000090")
    assert tli_switch_point(3, history) is None
    assert tli_switch_point(5, history) is None


@pytest.mark.parametrize("content", ["", "\n", "# nothing\n"])
def test_a_first_timeline_has_no_history(content: str) -> None:
    assert parse_timeline_history(1, content) == ()


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        ("one\t0/1\tx", "Expected a numeric timeline ID."),
        ("1", "Expected a write-ahead log switchpoint location."),
        ("1\tnowhere\tx", "Expected a write-ahead log switchpoint location."),
        ("1\t0/\tx", "Expected a write-ahead log switchpoint location."),
        ("1\t0/123456789\tx", "Expected a write-ahead log switchpoint location."),
        ("2\t0/1\tx\n1\t0/2\tx", "Timeline IDs must be in increasing sequence."),
        ("2\t0/1\tx\n2\t0/2\tx", "Timeline IDs must be in increasing sequence."),
        ("3\t0/1\tx", "Timeline IDs must be less than child timeline's ID."),
        ("7\t0/1\tx", "Timeline IDs must be less than child timeline's ID."),
    ],
)
def test_anything_else_is_a_protocol_violation(content: str, detail: str) -> None:
    with pytest.raises(ProtocolViolation, match="history file of timeline 3") as caught:
        parse_timeline_history(3, content)
    assert (caught.value.code, caught.value.detail) == ("08P01", detail)


@pytest.mark.parametrize("cut", range(len(FILE)))
def test_a_file_cut_off_is_read_as_far_as_it_goes_or_refused(cut: int) -> None:
    whole = parse_timeline_history(5, FILE)
    try:
        history = parse_timeline_history(5, FILE[:cut])
    except ProtocolViolation:
        return
    # The last position may have lost digits; what comes before it is whole.
    assert history[:-1] == whole[: max(0, len(history) - 1)]
