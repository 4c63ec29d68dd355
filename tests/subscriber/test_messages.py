import io

import pytest

from catalog.errcodes import ConfigFileError, ConnectionFailure, ReplicationError
from subscriber.messages import notice, print_error, print_notice, warning


def reported(error: BaseException) -> tuple[int, str]:
    out = io.StringIO()
    return print_error(error, out), out.getvalue()


def test_errors_as_psql_prints_them() -> None:
    error = ConnectionFailure("could not connect", detail="It is off.", hint="Turn it on.")
    error.context.append("doing this")
    assert reported(error) == (
        1,
        "ERROR:  08006: could not connect\nDETAIL:  It is off.\n"
        "HINT:  Turn it on.\nCONTEXT:  doing this\n",
    )


def test_configuration_is_seen_without_contacting_anything() -> None:
    assert reported(ConfigFileError("no", sqlstate="42601"))[0] == 2
    assert reported(ReplicationError("no", sqlstate="42601"))[0] == 1


def test_notices() -> None:
    out = io.StringIO()
    print_notice(notice("done"), out)
    print_notice(warning("hm", detail="So.", hint="Do."), out)
    assert out.getvalue() == "NOTICE:  done\nWARNING:  hm\nDETAIL:  So.\nHINT:  Do.\n"


def test_bug_names_a_place_and_no_value() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        _ = {"secret": 1}["secret"] // 0
    status, text = reported(caught.value)
    assert status == 1
    assert text.startswith("ERROR:  XX000: unexpected ZeroDivisionError at test_messages.py:")
    assert "secret" not in text


def test_disk_and_ctrl_c() -> None:
    assert "58030" in reported(PermissionError(13, "Permission denied", "/x"))[1]
    assert reported(KeyboardInterrupt())[1].startswith("ERROR:  57014: canceling")


def test_a_name_of_the_publisher_does_not_steer_the_terminal() -> None:
    assert "\\x1B[2J" in reported(ReplicationError('table "\x1b[2J" is gone'))[1]
