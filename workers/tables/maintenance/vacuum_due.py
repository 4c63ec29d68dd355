"""Is a vacuum due, by the counts of deleted rows?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from config.guc import Settings


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """Counts of a table: rows in the files, deleted rows included, and deletes.

    ``not_found`` are the deletes counted when a vacuum found no file to rewrite.
    ``looked_at`` is when the last vacuum began, in seconds of the worker's clock.
    """

    rows: int = 0
    deleted: int = 0
    not_found: int = 0
    looked_at: float = -math.inf


NONE_DELETED: Final = DeletedRows()


def vacuum_is_due(counted: DeletedRows, settings: Settings) -> bool:
    """``relation_needs_vacanalyze``: by the deletes since a vacuum found no file to rewrite."""
    deleted = counted.deleted - counted.not_found
    live = max(counted.rows - deleted, 0)  # deletes not found are in no file
    bar = settings.autovacuum_vacuum_threshold + settings.autovacuum_vacuum_scale_factor * live
    return deleted > bar
