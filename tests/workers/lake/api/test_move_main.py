"""What may move where, and one call for several tables: look, call, look again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from catalog.errcodes import (
    ConnectionFailure,
    FeatureNotSupported,
    ReplicationError,
)
from config.limits import COMMIT_ATTEMPTS
from workers.lake.api.move_main import Seen, move_all, refusal_in, tip_of
from workers.lake.connect.errors import LakeFailure
from workers.lake.refusals import main_was_moved, no_call_for_several
from workers.lake.table import LakeIdent

A, B = LakeIdent("s", "a"), LakeIdent("s", "b")
BRANCH = "pgsub_1_1_1"


def failure(message: str) -> LakeFailure:
    error = LakeFailure("the lake failed while publishing to 2 lake tables")
    error.message = message
    return error


UNKNOWN = failure("org.apache.iceberg.exceptions.CommitStateUnknownException: Service failed: 503")
CONFLICT = failure("org.apache.iceberg.exceptions.CommitFailedException: Commit failed: main")
CUT = failure("org.apache.iceberg.exceptions.RESTException: Error occurred while processing POST")


# Which snapshot main moves to


def metadata(main: int, tip: int | None, *, ours: bool = True) -> dict[str, Any]:
    """A table with snapshots 4 ← 5 and 4 ← 6."""
    refs = {"main": {"type": "branch", "snapshot-id": main}}
    if tip is not None:
        age = {"max-ref-age-ms": 1} if ours else {}
        refs[BRANCH] = {"type": "branch", "snapshot-id": tip, **age}
    snapshots = [
        {"snapshot-id": each, "timestamp-ms": 0, **parent}
        for each, parent in (
            (4, {}),
            (5, {"parent-snapshot-id": 4}),
            (6, {"parent-snapshot-id": 4}),
        )
    ]
    return {"refs": refs, "snapshots": snapshots, "current-snapshot-id": main}


def test_main_moves_to_the_branch_or_stays_ahead() -> None:
    assert tip_of(A, metadata(4, 5), BRANCH) == 5
    assert tip_of(A, metadata(5, 5), BRANCH) == 5
    assert tip_of(A, metadata(5, 4), BRANCH) == 5, "published, and another commit came behind"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (metadata(6, 5), "main was moved"),
        (metadata(4, None), "it was changed meanwhile"),
        (metadata(4, 5, ours=False), "it was changed meanwhile"),
    ],
    ids=["another commit", "no branch", "a branch made anew"],
)
def test_main_that_may_not_move_is_refused(found: dict[str, Any], words: str) -> None:
    with pytest.raises(ReplicationError, match=words) as refused:
        tip_of(A, found, BRANCH)
    assert refused.value.code == "40001"


# One call


class Catalog:
    """Two tables with main at 4 and branches at 5; the answers of calls in turn."""

    def __init__(self, *answers: tuple[bool | str, ReplicationError | None]) -> None:
        """An answer: whether the call takes effect (or on one table only), and its error."""
        self.main = {A: 4, B: 4}
        self.held = frozenset[LakeIdent]()
        self.answers = list(answers)
        self.looks = 0
        self.called: list[list[LakeIdent]] = []

    def look(self) -> list[Seen]:
        """The first look at a table with a held commit may be at an old state."""
        self.looks += 1
        old = self.held if self.looks == 1 else ()
        return [
            Seen(ident, 5, *((None,) if at == 5 else (ident, ident in old)))
            for ident, at in self.main.items()
        ]

    def call(self, changes: Sequence[Any]) -> None:
        self.called.append(list(changes))
        effect, error = self.answers.pop(0)
        for ident in changes:
            if effect is True or effect == ident.table:
                self.main[ident] = 5
        if error is not None:
            raise error

    def move(self) -> list[int]:
        return move_all(self.look, self.call)


def test_all_tables_move_by_one_call_and_are_looked_at_behind_it() -> None:
    catalog = Catalog((True, None))
    assert catalog.move() == [5, 5]
    assert (catalog.called, catalog.looks) == ([[A, B]], 2)


@pytest.mark.parametrize("error", [UNKNOWN, CONFLICT], ids=["5xx", "409 to the second request"])
def test_a_call_that_took_effect_is_not_called_again(error: ReplicationError) -> None:
    catalog = Catalog((True, error))
    assert catalog.move() == [5, 5]
    assert catalog.called == [[A, B]]


@pytest.mark.parametrize("error", [UNKNOWN, CONFLICT, None], ids=["5xx", "409", "a lie"])
def test_a_call_without_effect_is_called_again(error: ReplicationError | None) -> None:
    """A catalog that answers "yes" and has done nothing is known: Iceberg's own test server."""
    catalog = Catalog((False, error), (True, None))
    assert catalog.move() == [5, 5]
    assert catalog.called == [[A, B], [A, B]]


def test_behind_a_half_move_only_the_other_table_is_asked_for() -> None:
    catalog = Catalog(("a", UNKNOWN), (True, None))
    assert catalog.move() == [5, 5]
    assert catalog.called == [[A, B], [B]]


def test_tables_that_are_there_need_no_call() -> None:
    catalog = Catalog()
    catalog.main = {A: 5, B: 5}
    assert catalog.move() == [5, 5]
    assert catalog.called == []


@pytest.mark.parametrize("error", [UNKNOWN, CONFLICT, None], ids=["5xx", "409", "a lie"])
def test_calls_end(error: ReplicationError | None) -> None:
    catalog = Catalog(*[(False, error)] * COMMIT_ATTEMPTS)
    with pytest.raises(ReplicationError) as raised:
        catalog.move()
    assert raised.value is error or raised.value.code == "40001"
    assert (len(catalog.called), catalog.looks) == (COMMIT_ATTEMPTS, COMMIT_ATTEMPTS + 1)


@pytest.mark.parametrize("error", [CUT, ConnectionFailure("lost the lake server")], ids=str)
def test_other_errors_are_raised_at_once(error: ReplicationError) -> None:
    catalog = Catalog((False, error))
    with pytest.raises(ReplicationError) as raised:
        catalog.move()
    assert raised.value is error


def test_main_that_another_writer_moved_ends_the_calls() -> None:
    looks: list[Callable[[], list[Seen]]] = []
    catalog = Catalog((False, CONFLICT))

    def look() -> list[Seen]:
        looks.append(look)
        if len(looks) > 1:
            raise main_was_moved(B, "Another commit is on main.")
        return catalog.look()

    with pytest.raises(ReplicationError, match=r'"s\.b": main was moved'):
        move_all(look, catalog.call)
    assert len(catalog.called) == 1


# A catalog that takes no such call


def test_a_refusal_of_the_call_ends_the_calls() -> None:
    refusal = no_call_for_several("The catalog answered with status 413.")
    catalog = Catalog((False, refusal))
    with pytest.raises(FeatureNotSupported) as raised:
        catalog.move()
    assert raised.value is refusal
    assert len(catalog.called) == 1


def test_a_refusal_of_an_old_state_is_looked_at() -> None:
    """Some catalogs answer to a change of an old state as to a wrong request."""
    catalog = Catalog((False, no_call_for_several()), (True, None))
    catalog.held = frozenset({B})
    assert catalog.move() == [5, 5]
    assert (catalog.called, catalog.looks) == ([[A, B], [A, B]], 3)


def test_a_refusal_of_the_newest_state_ends_the_calls() -> None:
    first, second = no_call_for_several("once"), no_call_for_several("twice")
    catalog = Catalog((False, first), (False, second), (True, None))
    catalog.held = frozenset({A, B})
    with pytest.raises(FeatureNotSupported) as raised:
        catalog.move()
    assert raised.value is second
    assert len(catalog.called) == 2


def test_a_refusal_of_an_old_state_counts_as_an_attempt() -> None:
    refusal = no_call_for_several()
    catalog = Catalog((False, refusal), *[(False, CONFLICT)] * (COMMIT_ATTEMPTS - 1))
    catalog.held = frozenset({A})
    with pytest.raises(ReplicationError) as raised:
        catalog.move()
    assert raised.value is CONFLICT
    assert len(catalog.called) == COMMIT_ATTEMPTS


def test_an_old_state_of_a_table_that_is_there_excuses_no_refusal() -> None:
    refusal = no_call_for_several()
    catalog = Catalog((False, refusal))
    catalog.held, catalog.main[B] = frozenset({B}), 5
    with pytest.raises(FeatureNotSupported) as raised:
        catalog.move()
    assert raised.value is refusal


ICEBERG = "org.apache.iceberg.exceptions."


@pytest.mark.parametrize(
    ("thrown", "answer"),
    [
        ("java.lang.UnsupportedOperationException: no", "UnsupportedOperationException"),
        ("java.lang.IllegalArgumentException: no", "IllegalArgumentException"),
        (f"{ICEBERG}NoSuchTableException: ws.NotFoundException", "NoSuchTableException"),
        (f"{ICEBERG}BadRequestException: Malformed request: no", "BadRequestException"),
        (f"{ICEBERG}ForbiddenException: Forbidden: no", "ForbiddenException"),
        (f"{ICEBERG}RESTException: Unable to process (code: 406, type: X): no", "status 406"),
        (f"{ICEBERG}RESTException: Unable to process (code: 413, type: X): no", "status 413"),
    ],
)
def test_a_refusal_is_told_by_exception_or_status(thrown: str, answer: str) -> None:
    assert refusal_in(thrown) == answer


@pytest.mark.parametrize(
    "thrown",
    [
        f"{ICEBERG}CommitFailedException: Commit failed: {ICEBERG}BadRequestException: stale",
        f"{ICEBERG}CommitStateUnknownException: java.lang.IllegalArgumentException: half done",
        f"{ICEBERG}NotAuthorizedException: Not authorized: no",
        f"{ICEBERG}RESTException: Error occurred while processing POST request",
        f"{ICEBERG}RESTException: Unable to process (code: 429, type: X): (code: 404, type: Y)",
        f"{ICEBERG}RESTException: Unable to process (code: 510, type: X): no",
    ],
)
def test_a_failed_call_is_not_refused(thrown: str) -> None:
    assert refusal_in(thrown) is None
