"""What a person reads who is told that a change is not followed."""

from __future__ import annotations

from workers.changes.cannot_follow import KEEP, CannotFollow

COMMAND = "pgsub refresh mysub --recopy public.t"


def test_the_hint_has_the_command_and_what_comes_before_it() -> None:
    for reason, hint in (
        (CannotFollow("why"), f"{COMMAND} copies the table again with its present columns."),
        (CannotFollow("why", copies=False), "columns, once the reason is gone."),
        (CannotFollow("why", copies=False, remedy=KEEP), f"{KEEP}: {COMMAND} makes it anew."),
    ):
        assert reason.hint(COMMAND).endswith(hint)
