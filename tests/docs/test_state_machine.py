from __future__ import annotations

from catalog.pg_subscription_rel import TRANSITIONS, SubRelState
from tests.docs.pages import script, section, text

PAGE = "state-machine.md"


def test_generated_part_is_up_to_date() -> None:
    """If not: ``python -P docs/make_state_machine.py``."""
    assert script("make_state_machine").updated(text(PAGE)) == text(PAGE)


def test_every_move_is_in_table_and_diagram() -> None:
    generated = script("make_state_machine").generated()
    assert generated in text(PAGE)
    assert generated.count(" --> ") == len(TRANSITIONS)


def test_every_state_is_explained_and_named_as_in_the_code() -> None:
    page = text(PAGE)
    for state in SubRelState:
        assert f"| `{state.value}` | {state.name} |" in page


def test_every_stored_state_has_its_crash() -> None:
    crashes = section(text(PAGE), "## What a crash leads to")
    for letter in "idsr":
        assert f"| `{letter}` |" in crashes
