"""Sessions of the lake server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.fix_lake import Lake
from workers.lake.connect.session import LakeSession
from workers.lake.connect.sessions import Sessions


@pytest.fixture
def begun(lake_server: Lake) -> Iterator[Callable[[], LakeSession]]:
    made: list[Sessions] = []

    def begin() -> LakeSession:
        made.append(Sessions(lake_server.url, "sharing", lambda *ids: None))
        return made[-1].get()

    yield begin
    for each in made:
        each.close()
