"""What the tests of object stores and catalogs have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lake.lake_stack import LakeStack, lake_stack


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeStack]:
    """An S3 store and a REST catalog, for a module; a module may have another of its own."""
    with lake_stack(tmp_path_factory.mktemp("stack")) as running:
        yield running
