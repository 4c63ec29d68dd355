from __future__ import annotations

from tests.crash.kill_rounds import ITSELF, LAKE_SERVER, LAUNCHER, PLACES
from tests.docs.pages import script, text
from workers import failpoints

PAGE = "reliability.md"


def test_generated_part_is_up_to_date() -> None:
    """If not: ``python -P docs/make_crash_table.py``."""
    assert script("make_crash_table").updated(text(PAGE)) == text(PAGE)


def test_every_place_is_in_the_table() -> None:
    named = [
        place
        for value in vars(failpoints).values()
        if isinstance(value, tuple)
        for place in value
        if isinstance(place, str)
    ]
    told = [place for _, places, _, _ in script("make_crash_table").GROUPS for place in places]
    assert sorted(told) == sorted(named)


def test_what_it_says_of_workers_is_what_the_rounds_play() -> None:
    table = script("make_crash_table")
    rounds = {
        place for _, places, ways, _ in table.GROUPS for place in places if ways == table.WAYS
    }
    assert rounds == set(PLACES)
    assert ITSELF == (("itself", "kill"), ("itself", "raise"))
    assert [LAKE_SERVER, LAUNCHER] == [("lake server", "kill"), ("launcher", "kill")]
