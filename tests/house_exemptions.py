"""Modules, rooms and numbers that a rule of ``tests/test_tidy.py`` lets pass, with the reason.

The lists shrink only: each rule fails when an entry here is no longer needed. Modules stand under
the folder ("room") that holds them.
"""

from __future__ import annotations

from typing import Final

BY_ITS_ROOM: Final = "tests of other modules of the room exercise the module"

NO_MIRROR: Final[dict[str, dict[str, str]]] = {
    "subscriber/commands": {
        "context": BY_ITS_ROOM,
    },
    "workers": {
        "fork_server_preload": "has imports only; the tests of the fork server run them",
    },
    "workers/apply": {
        "publisher_link": BY_ITS_ROOM,
    },
    "workers/changes": {
        "table_work": BY_ITS_ROOM,
    },
    "workers/lake": {
        "copy_plan": BY_ITS_ROOM,
        "publication": BY_ITS_ROOM,
        "staged_rows": BY_ITS_ROOM,
    },
    "workers/lake/api": {
        "java_api": BY_ITS_ROOM,
    },
    "workers/lake/connect": {
        "lake_url": BY_ITS_ROOM,
    },
    "workers/lake/files": {
        "tables": BY_ITS_ROOM,
    },
    "workers/lake/server": {
        "warm_archive": BY_ITS_ROOM,
    },
    "workers/process": {
        "worker_exit": BY_ITS_ROOM,
    },
    "workers/publisher": {
        "interfaces": BY_ITS_ROOM,
    },
    "workers/sync": {
        "context": BY_ITS_ROOM,
    },
}
"""Room → module → why no ``tests/<room>/test_<module>.py`` exists."""

LONG_MODULES: Final[dict[str, str]] = {}

LONG_FUNCTIONS: Final[dict[str, str]] = {}

SHORT_MODULES: Final[dict[str, str]] = {
    "subscriber/commands/reset_stats.py": "one statement is one module",
    "subscriber/launcher/core_files.py": "the command line loads nothing else of the launcher",
    "workers/fork_server_preload.py": "the fork server imports the module before it forks",
    "workers/fork_server_signals.py": "the import itself has the effect, before all other imports",
    "workers/lake/sql/staged_frame.py": "Spark's side of a staged file",
    "workers/lake/storage/local_path.py": "the launcher uses the functions without loading Arrow",
    "workers/process/worker_exit.py": "the launcher and the workers share the exit codes",
    "workers/tables/parallel.py": "the room's modules share the function",
}

POINTER_LIMITS: Final[dict[str, float]] = {}
"""Room → highest share of pointer words, in percent. Every other room has the general limit."""

NUMBERS: Final[dict[str, str]] = {
    "catalog/sqlite_file.py::BUSY_TIMEOUT_SECONDS": "the catalog imports no other package",
    "subscriber/sql/error_position.py::DISPLAY_SIZE": "psql's own width of an excerpt",
    "workers/columnar/binary/direct.py::_EPOCH_DAYS": "days from 1970 to 2000",
    "workers/lake/copy_task.py::_CHUNK": "the task travels to executors without this package",
    "workers/lake/server/warm_archive.py::Settings": "1 sends every batch the longer way",
}
"""``module::NAME`` or ``module::call`` → why the number is no limit of ``config/limits.py``."""
