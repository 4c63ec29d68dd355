"""Values of options as PostgreSQL reads them: ``define.c``, and the options of subscriptions.

A value comes from SQL text (a word in lower case, a string, a number, or no value) or from YAML
(which has booleans too). All functions are pure and raise PostgreSQL's errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from catalog.errcodes import InvalidParameterValue, SyntaxErrorOrAccess
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_subscription import Stream, check_slot_name

SYNCHRONOUS_COMMIT: Final = ("local", "remote_write", "remote_apply", "on", "off")

_TRUE: Final = ("true", "on")
_FALSE: Final = ("false", "off")
_LEVELS: Final = {word: word for word in SYNCHRONOUS_COMMIT} | {
    "true": "on",
    "yes": "on",
    "1": "on",
    "false": "off",
    "no": "off",
    "0": "off",
}


def def_get_boolean(name: str, value: Any) -> bool:
    """``defGetBoolean``: no value means true; 0 and 1 count as numbers only."""
    found = boolean(value)
    if found is None:
        raise SyntaxErrorOrAccess(f"{name} requires a Boolean value")
    return found


def boolean(value: Any) -> bool | None:
    """A boolean in any spelling; no value means true. None for any further text."""
    if value is None:
        return True
    if isinstance(value, int):
        return {0: False, 1: True}.get(value)
    word = value.lower() if isinstance(value, str) else ""
    return word in _TRUE if word in _TRUE + _FALSE else None


def def_get_string(name: str, value: Any) -> str:
    """``defGetString``: the value is required."""
    if value is None:
        raise SyntaxErrorOrAccess(f"{name} requires a parameter")
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int):
        raise SyntaxErrorOrAccess(f"{name} requires a name")
    return str(value)


def def_get_streaming_mode(name: str, value: Any) -> Stream:
    """``defGetStreamingMode``: a boolean or ``parallel``."""
    if isinstance(value, str) and value.lower() == "parallel":
        return Stream.PARALLEL
    found = boolean(value)
    if found is None:
        raise SyntaxErrorOrAccess(f'{name} requires a Boolean value or "parallel"')
    return Stream.ON if found else Stream.OFF


def slot_name(name: str, value: Any) -> str | None:
    """A valid slot name, or None for ``none``."""
    text = def_get_string(name, value)
    if text == "none":
        return None
    check_slot_name(text)
    return text


def origin(name: str, value: Any) -> str:
    """``any`` or ``none`` in any case (22023)."""
    text = def_get_string(name, value)
    if text.lower() not in ("any", "none"):
        raise InvalidParameterValue(f'unrecognized origin value: "{text}"')
    return text.lower()


def synchronous_commit(name: str, value: Any) -> str:
    """A value of the setting ``synchronous_commit`` (22023), in the normal spelling."""
    text = def_get_string(name, value)
    try:
        return _LEVELS[text.lower()]
    except KeyError:
        raise InvalidParameterValue(
            f'invalid value for parameter "synchronous_commit": "{text}"',
            hint=f"Available values: {', '.join(SYNCHRONOUS_COMMIT)}.",
        ) from None


def lsn(name: str, value: Any) -> LSN | None:
    """The position of SKIP, or None for ``none``; 0/0 is no position, and refused (22023)."""
    text = def_get_string(name, value)
    if text == "none":
        return None
    found = LSN.parse(text)
    if found == InvalidXLogRecPtr:
        raise InvalidParameterValue(f"invalid WAL location (LSN): {text}")
    return found


READERS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "connect": def_get_boolean,
    "create_slot": def_get_boolean,
    "enabled": def_get_boolean,
    "slot_name": slot_name,
    "copy_data": def_get_boolean,
    "synchronous_commit": synchronous_commit,
    "refresh": def_get_boolean,
    "binary": def_get_boolean,
    "streaming": def_get_streaming_mode,
    "two_phase": def_get_boolean,
    "disable_on_error": def_get_boolean,
    "password_required": def_get_boolean,
    "run_as_owner": def_get_boolean,
    "origin": origin,
    "failover": def_get_boolean,
    "lsn": lsn,
}
"""Every option of PostgreSQL 18's subscriptions → the function that reads the value."""
