"""The password file of a copy by Spark's tasks, which connect to the publisher by themselves.

A password of the environment, or of ``password_command``, is written to a file of mode 0600 for the
time of the copy. A copy may take hours, and a token lives for minutes: so the command runs again
and again, and the file is replaced. A failure of the command is logged, and leaves the file as it
is: the next attempt comes a moment later, and only a task that connects meanwhile can fail.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import Subscription
from config.conninfo import passfile_line
from config.monitor_limits import PASSWORD_REFRESH_SECONDS
from workers.publisher.password_command import subscription_password

log = logging.getLogger(__name__)


@contextmanager
def copy_passfile(
    sub: Subscription, folder: Path, interrupted: Callable[[], bool]
) -> Iterator[str | None]:
    """Yield the path of a password file in ``folder``; the subscription's file if it has one."""
    password = subscription_password(sub, interrupted)
    if password is None:
        yield sub.passfile
        return
    line = passfile_line(password)
    for each in (folder.parent, folder):  # with parents=True the umask would rule the parent's mode
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "passfile"
    _write(path, line)
    done = threading.Event()
    refresh = threading.Thread(
        target=_refresh, args=[sub, path, line, done], name="password", daemon=True
    )
    if sub.password_command is not None:
        refresh.start()
    try:
        yield str(path)
    finally:
        done.set()
        if refresh.is_alive():
            refresh.join()
        path.unlink(missing_ok=True)


def _refresh(sub: Subscription, path: Path, line: str, done: threading.Event) -> None:
    """Replace the file when the command prints another password."""
    while not done.wait(sub.password_command_ttl or PASSWORD_REFRESH_SECONDS):
        try:
            password = subscription_password(sub, done.is_set)
            before, line = line, passfile_line(password or "")
            if line != before:
                _write(path, line)
        except ReplicationError as error:
            log.warning(
                "action=password_command subid=%d sqlstate=%s %s",
                *(sub.oid, error.code, error.primary),
                extra={"DETAIL": error.detail, "HINT": error.hint},
            )
        except OSError as error:
            log.warning(
                "action=password_command subid=%d could not write a password file: %s",
                *(sub.oid, error.strerror),
            )


def _write(path: Path, line: str) -> None:
    """Write the file; a task reads the old content or the new content."""
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(line)
    fresh.replace(path)
