"""Which locations are local, and the path of a local location."""

from __future__ import annotations

from pathlib import Path

import pytest

from workers.lake.storage.local_path import is_local, local_path


@pytest.mark.parametrize("path", ["/x/y", "file:/x/y", "file:///x/y"])
def test_a_path_has_several_spellings(path: str) -> None:
    assert is_local(path)
    assert local_path(path) == Path("/x/y")


@pytest.mark.parametrize("path", ["s3://b/x", "file://host/x", "x/y", "//host/x", "hdfs:/x", ""])
def test_elsewhere(path: str) -> None:
    assert not is_local(path)
