"""The statements, and words in others, that only we send, as ``docs/protocol.md`` lists them."""

from __future__ import annotations

import re

from tests.docs.pages import rows, section, text

CREATE, APPLY, SYNC = CONNECTIONS = ("CREATE", "apply", "sync")
HOLE = "…"
STATEMENTS, WORDS = "## 6. Statements that only we send", "## 7. Words that only we send"


def listed(heading: str) -> list[tuple[str, str, str]]:
    """Connections, statement or words (holes in it) and why, row by row."""
    table = rows(section(text("protocol.md"), heading))
    return [(on, statement.strip("`"), why) for on, statement, why in table]


def patterns(heading: str) -> dict[str, dict[str, str]]:
    """By connection and why: what such a statement or such words match, put on one line."""
    found: dict[str, dict[str, str]] = {each: {} for each in CONNECTIONS}
    for on, statement, why in listed(heading):
        pattern = re.escape(statement).replace(HOLE, ".*")
        for each in CONNECTIONS if on == "all" else on.split(", "):
            found[each][why] = pattern
    return found
