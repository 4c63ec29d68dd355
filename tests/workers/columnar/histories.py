"""What a publisher may send of a table with a key, for whoever folds it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.workers.columnar.native import Stored
from tests.workers.columnar.records import delete, insert, layout, update
from workers.columnar.column_reader import Layout
from workers.proto.messages import Message

THREE = layout(pa.string(), pa.string(), pa.string())
PAIR = layout(pa.string(), pa.string(), pa.string(), key=(1, 0))

KEYS = ["1", "2", "3", "4", "long key of more than eight bytes"]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Message], list[Stored], Layout]:
    """What a publisher may send, and a lake that holds some of the rows it had before.

    ``second`` is out of line: unchanged in an UPDATE it may go unsent, also when it is in the key.
    """
    composite = draw(st.booleans())
    form = PAIR if composite else THREE
    key = (lambda row: (row[0], row[1])) if composite else (lambda row: (row[0],))
    values = st.sampled_from(["x", "y", "", None, "value of some length, seen once"])
    seconds = st.sampled_from(["p", "q"]) if composite else values
    live = {}
    for first in draw(st.sets(st.sampled_from(KEYS))):
        row = (first, draw(seconds), draw(values))
        live[key(row)] = row
    lake: list[Stored] = [row for row in live.values() if draw(st.integers(0, 3))]
    whole = draw(st.booleans())
    messages: list[Message] = []
    for _ in range(draw(st.integers(1, 12))):
        row = (draw(st.sampled_from(KEYS)), draw(seconds), draw(values))
        known = sorted(live)
        what = draw(st.sampled_from("IUUUD"))
        if what == "I" or not known:
            if key(row) not in live:
                live[key(row)] = row
                messages.append(insert(*row))
            continue
        old = live[draw(st.sampled_from(known))]
        old_key = [value if at in form.key else None for at, value in enumerate(old)]
        if what == "D":
            del live[key(old)]
            messages.append(delete(old=old) if whole else delete(key=old_key))
            continue
        if not draw(st.integers(0, 2)):
            row = (old[0], *row[1:])
        if key(row) != key(old) and key(row) in live:
            continue
        sent: list[Any] = list(row)
        for at in (1, 2):
            if row[at] == old[at] and row[at] is not None and draw(st.booleans()):
                sent[at] = ...
        del live[key(old)]
        live[key(row)] = row
        if whole:
            messages.append(update(sent, old=old))
        elif key(row) != key(old) or any(sent[at] is ... for at in form.key):
            messages.append(update(sent, key=old_key))
        else:
            messages.append(update(sent))
    return messages, lake, form
