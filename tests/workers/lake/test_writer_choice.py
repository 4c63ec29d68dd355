"""The writer of a table: what is asked for, what can be had, and the error between both."""

from __future__ import annotations

import pytest

from catalog.errcodes import FeatureNotSupported
from catalog.pg_subscription import TableOptions
from workers.lake.writer_choice import (
    AUTO,
    BY_WISH,
    FILES,
    POSSIBLE,
    SPARK,
    WriterChoice,
    choose,
    computed_column,
)


@pytest.mark.parametrize(
    ("asked", "refusal", "writer", "reason"),
    [
        (AUTO, None, FILES, POSSIBLE),
        (AUTO, "It cannot.", SPARK, "It cannot."),
        (FILES, None, FILES, BY_WISH),
        (SPARK, None, SPARK, BY_WISH),
        (SPARK, "It cannot.", SPARK, BY_WISH),
    ],
)
def test_what_is_chosen(asked: str, refusal: str | None, writer: str, reason: str) -> None:
    assert choose(asked, refusal, "s.t") == WriterChoice(asked, writer, reason)


def test_files_that_cannot_be_had_are_an_error() -> None:
    with pytest.raises(FeatureNotSupported) as error:
        choose(FILES, "It cannot.", "s.t")
    assert (error.value.code, error.value.detail) == ("0A000", "It cannot.")


def test_columns_that_the_lake_computes() -> None:
    assert computed_column(TableOptions()) is None
    generated = computed_column(TableOptions(generated=(("double", "2 * id"),)))
    assert generated == 'Spark computes column "double" (generated).'
    defaults = computed_column(TableOptions(defaults=(("day", "now()"),)))
    assert defaults == 'Spark computes column "day" (defaults).'
