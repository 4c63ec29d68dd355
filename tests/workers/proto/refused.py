"""The error about bytes that are no message."""

from __future__ import annotations

import re

import pytest

from catalog.errcodes import ProtocolViolation
from workers.proto import decode


def refused(data: bytes) -> ProtocolViolation:
    """The error, which says at which byte what was expected."""
    with pytest.raises(ProtocolViolation) as caught:
        decode.message(data)
    assert caught.value.code == "08P01"
    said = re.match(
        r"At byte (\d+) of the [a-z ]+ the .+ was expected.*\.$", str(caught.value.detail)
    )
    assert said is not None, caught.value.detail
    assert int(said[1]) <= len(data)
    return caught.value
