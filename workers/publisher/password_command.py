"""Get a subscription's password: from its ``password_command``, or from an environment variable.

A cloud's login takes a token that lives for minutes. ``password_command`` prints a token, as
``ssl_passphrase_command`` of PostgreSQL prints a passphrase: the shell runs the text, and standard
output is the password, without the line break at the end. The command runs before each connection;
with ``password_command_ttl`` the output is kept in the process's memory for so long. The output is
stored nowhere, but for the password file of a copy (``workers.sync.copy_table``). Output and
standard error are never logged: both may hold the password.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from catalog.errcodes import ConnectionFailure, ReplicationError
from catalog.pg_subscription import Subscription
from config.limits import WAIT_SLICE_SECONDS
from config.monitor_limits import PASSWORD_COMMAND_SECONDS
from workers.publisher.connection import terminated_by_command

_lock = threading.Lock()
_kept: dict[str, tuple[float, str]] = {}
"""Command → the time of the monotonic clock until which the output is kept, and the output."""


def subscription_password(
    sub: Subscription, interrupted: Callable[[], bool] = lambda: False
) -> str | None:
    """The password; None if the connection has its own, or none.

    Raises 08006 after a failure of the command, 57P01 if ``interrupted`` becomes true.
    """
    if sub.password_command is None:
        return os.environ.get(sub.password_env) if sub.password_env else None
    with _lock:
        until, password = _kept.get(sub.password_command, (0.0, ""))
    began = time.monotonic()
    if began < until:
        return password
    password = _output(sub, sub.password_command, interrupted)
    if sub.password_command_ttl:
        with _lock:
            _kept[sub.password_command] = began + sub.password_command_ttl, password
    return password


def _output(sub: Subscription, command: str, interrupted: Callable[[], bool]) -> str:
    try:
        process = subprocess.Popen(  # noqa: S602 (a command of the configuration, as PostgreSQL's)
            command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise _failed(sub, f"The shell cannot be started: {error.strerror}.") from None
    try:
        data = _wait(sub, process, interrupted)
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        raise _failed(sub, f"The command ended with status {process.returncode}.")
    text = data.decode(errors="replace").removesuffix("\n").removesuffix("\r")
    if not text or "\n" in text or "\0" in text:
        raise _failed(sub, "The output is empty, or has more than one line.")
    return text


def _wait(
    sub: Subscription, process: subprocess.Popen[bytes], interrupted: Callable[[], bool]
) -> bytes:
    deadline = time.monotonic() + PASSWORD_COMMAND_SECONDS
    while True:
        try:
            return process.communicate(timeout=WAIT_SLICE_SECONDS)[0]
        except subprocess.TimeoutExpired:
            if interrupted():
                raise terminated_by_command() from None
            if time.monotonic() > deadline:
                said = f"The command has not ended within {PASSWORD_COMMAND_SECONDS:.0f} s."
                raise _failed(sub, said) from None


def _failed(sub: Subscription, detail: str) -> ReplicationError:
    return ConnectionFailure(
        f'password_command of subscription "{sub.subname}" failed',
        detail=detail,
        hint="Run the command as the user of pgsub: it must print the password alone, in one line, "
        "and end with status 0.",
    )
