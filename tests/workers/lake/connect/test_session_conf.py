"""The settings of every session."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from workers.lake.connect.session import LakeSession
from workers.lake.connect.session_conf import FIXED


@pytest.mark.spark
def test_a_new_session_has_what_every_session_has(begun: Callable[[], LakeSession]) -> None:
    session = begun()
    assert {key: session.conf(key) for key in FIXED} == FIXED
