"""Other writers are looked for only where their rows are counted."""

from __future__ import annotations

from typing import Any

import pytest

from workers.lake.iceberg import known_others
from workers.lake.iceberg.known_others import KnownOthers
from workers.lake.sql.other_writers import NO_OTHER_WRITERS, OtherWriters
from workers.lake.table import LakeIdent

IDENT = LakeIdent("s", "t")


class AnySession:
    def get(self) -> str:
        return "session"


def test_the_last_answer_is_kept_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def look(_session: Any, ident: LakeIdent, known: OtherWriters | None) -> OtherWriters:
        asked.append((ident, known))
        return OtherWriters(len(asked))

    monkeypatch.setattr(known_others, "look_for_others", look)
    sessions: Any = AnySession()
    quiet, curious = (KnownOthers(sessions, finds=finds) for finds in (False, True))
    quiet.look(IDENT)
    assert (asked, quiet.of(IDENT)) == ([], NO_OTHER_WRITERS)
    for _ in range(2):
        curious.look(IDENT)
    assert asked == [(IDENT, None), (IDENT, OtherWriters(1))]
    assert curious.of(IDENT) == OtherWriters(2)
