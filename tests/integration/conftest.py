"""``make_flow(server, name)``: a flow per module, dropped after its tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from subscriber.commands.open_context import connect_publisher
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.harness import Pgsub
from tests.integration.flow import Flow
from tests.subscriber.twins import Around, around
from tests.twin import NativeTwin

FLOW_TIMEOUT = 600  # a module's first test waits for the whole flow


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Flows take longer than a test may."""
    for item in items:
        if "integration" in item.path.parts and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(FLOW_TIMEOUT))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Around]:
    """A site of twins, but for the publisher, which is a real server."""
    made = around(tmp_path)
    object.__setattr__(
        made.context, "connect", lambda sub: connect_publisher(sub, made.context.settings)
    )
    yield made
    made.store.close()


@pytest.fixture(scope="module")
def make_flow(pgsub: Pgsub, twin: NativeTwin) -> Iterator[Callable[..., Flow]]:
    """Flows that are closed after the module."""
    made: list[Flow] = []

    def make(server: EmbeddedPublisher, name: str, encoding: str | None = None) -> Flow:
        made.append(Flow(pgsub, twin, server, name, encoding))
        return made[-1]

    yield make
    for flow in made:
        flow.close()
