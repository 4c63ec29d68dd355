"""Every limit that is no setting: time-outs, sizes and counts, each with its unit in its name.

A user changes a setting (``config.guc``). A developer changes a limit, here and nowhere else. The
line below a limit says why it has its value. Three kinds of numbers stay where they are used: codes
of compiled kernels, constants of a file format or of a protocol, and the numbers of
``workers.lake.copy_task``, which travels to Spark's executors alone.
"""

from __future__ import annotations

from typing import Final

# -- waits of the launcher and of commands ---------------------------------------------------------

CATALOG_POLL: Final = 5.0
"""Seconds after which the launcher reads the catalog without a reason: a notice may be lost."""

GAP_RETRY_INTERVAL: Final = 60.0
"""Seconds until a worker that a gap ended is started again, for example after a lost slot. Waiting
does not bring the slot back. The commands that mend the gap do not wait for this time."""

# -- the lake's sessions ---------------------------------------------------------------------------

SESSION_IDLE_SECONDS: Final = 30 * 60.0
"""A Spark session not used for so long is replaced: servers forget a session after an hour."""

# -- batches and publishing ------------------------------------------------------------------------

GIVE_PAGES_BACK_SECONDS: Final = 0.05
"""How often a batch on disk gives its pages back: often enough to keep the memory flat."""

# -- maintenance -----------------------------------------------------------------------------------

IDLE_DELETE_FILES: Final = 8
"""Delete files beyond one for each data file that are left alone."""
