from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

from tests.crash.cases import cases_in
from tests.docs.pages import ROOT, script, text
from workers.process import failpoints

PAGE = "reliability.md"
MODULES = [
    import_module(f"tests.crash.{path.stem}")
    for path in sorted(Path(ROOT, "tests", "crash").glob("test_*.py"))
]

OF_WORKERS = {
    *(*failpoints.APPLY, *failpoints.FENCE, *failpoints.READY),
    *(*failpoints.TABLESYNC, *failpoints.UNDO),
}
"""Where workers come to in a first copy and in batches."""


def named() -> list[str]:
    """All places."""
    return [
        place
        for value in vars(failpoints).values()
        if isinstance(value, tuple)
        for place in value
        if isinstance(place, str)
    ]


def test_generated_part_is_up_to_date() -> None:
    """If not: ``python -P docs/make_crash_table.py``."""
    assert script("make_crash_table").updated(text(PAGE)) == text(PAGE)


def test_every_place_is_in_the_table() -> None:
    told = [place for _, places in script("make_crash_table").GROUPS for place in places]
    assert sorted(told) == sorted(named())


def test_every_way_to_die_is_played_on_s3_at_the_places_of_workers() -> None:
    page = script("make_crash_table")
    cells = {place: page.lake_cell(place) for place in named()}
    assert {place for place, cell in cells.items() if cell} == OF_WORKERS
    assert {cells[place] for place in OF_WORKERS} == {page.LAKE}


def test_every_way_to_die_is_played_at_every_place() -> None:
    """With every other test, but for what takes minutes.

    That is the launcher's death at the places of its workers, deaths at the places of commands and
    between slices, and the death of a server while a worker stands at a place of a permanent slot.
    While a transaction in progress is received, a worker alone dies with every other test.
    """
    page = script("make_crash_table")
    cells = {
        (place, head): page.cell(place, *way)
        for place in named()
        for head, way in page.WAYS.items()
    }
    later = {where: cell for where, cell in cells.items() if cell != page.ALWAYS}
    assert set(later.values()) == {page.FULL}
    of_commands = {
        *(*failpoints.CREATE, *failpoints.DROP, *failpoints.RECOPY),
        *(*failpoints.EMPTIED, *failpoints.ACCEPT_GAP, *failpoints.REFRESH),
    }
    of_two_phase = {
        *(*failpoints.TWO_PHASE_ENABLED, *failpoints.PREPARE),
        *(*failpoints.COMMIT_PREPARED, *failpoints.ROLLBACK_PREPARED),
    }
    before_the_commit = {*failpoints.PARALLEL, *failpoints.CHANGES_AHEAD}
    everywhere = {*of_commands, *of_two_phase, *failpoints.SLICES, *before_the_commit}
    assert {(place, "is killed") for place in failpoints.STREAMED}.isdisjoint(later)
    assert set(later) <= {
        *((place, "launcher") for place in {*OF_WORKERS, *failpoints.FINISHEDCOPY}),
        *((place, "lake server") for place in failpoints.FINISHEDCOPY),
        *((place, head) for place in failpoints.STREAMED for head in page.WAYS),
        *((place, head) for place in everywhere for head in page.WAYS),
    }


def test_nothing_is_played_that_the_table_does_not_tell() -> None:
    page = script("make_crash_table")
    told = {(*way, place) for way in page.WAYS.values() for place in named()}
    assert set(page.played()) == told


def test_what_dies_does_so_on_all_versions() -> None:
    """Every module that plays cases has a fixture that serves them on each."""
    playing = [module for module in MODULES if list(cases_in(module))]
    assert len(playing) >= 6
    for module in playing:
        source = inspect.getsource(module)
        names = ("VERSIONS", "LAKES", "STREAMING", "FILES_BEFORE", "PREPARING")
        named = [f"params={name}" in source for name in names]
        assert any(named), module.__name__
