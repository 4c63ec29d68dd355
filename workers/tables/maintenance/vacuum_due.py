"""Whether a table's files with deleted rows are to be rewritten, by what was counted of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from config.guc import Settings


@dataclass(frozen=True, slots=True)
class Dead:
    """Of a table: the rows in its files, the deletes that are counted, those of them that were
    ``left`` when no file was found to rewrite, and when that was last tried."""

    rows: int = 0
    dead: int = 0
    left: int = 0
    at: float = -math.inf


NONE_DEAD: Final = Dead()


def vacuum_is_due(dead: Dead, settings: Settings) -> bool:
    """``relation_needs_vacanalyze``: by what died since a look found nothing to do."""
    died = dead.dead - dead.left
    live = max(dead.rows - died, 0)  # what was left lies in no file any more
    bar = settings.autovacuum_vacuum_threshold + settings.autovacuum_vacuum_scale_factor * live
    return died > bar
