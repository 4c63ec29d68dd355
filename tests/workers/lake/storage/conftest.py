"""The places that staged files and tables lie in: a folder, and buckets of a running store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.object_store import ObjectStore, object_store
from workers.lake.storage.object_store import bucket_file_system

SECRET = "planted-4c1dSecretKey"


@dataclass(frozen=True, slots=True)
class Place:
    """A location, and the paths of the files below it."""

    location: str
    files: Callable[[], list[str]]


@pytest.fixture(scope="session")
def running_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """An S3-compatible store with one bucket."""
    with object_store(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture
def reachable_store(
    running_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ObjectStore]:
    """The same, named in the environment."""
    for name, value in running_store.environment("key", SECRET).items():
        monkeypatch.setenv(name, value)
    bucket_file_system.cache_clear()
    yield running_store
    bucket_file_system.cache_clear()


@pytest.fixture(params=["folder", "s3", "s3a"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A folder, or a prefix of a bucket under either of its two names."""
    if request.param == "folder":
        root = tmp_path / "shared"
        root.mkdir()
        return Place(str(root), lambda: sorted(str(p) for p in root.rglob("*") if p.is_file()))
    store: ObjectStore = request.getfixturevalue("reachable_store")
    prefix = f"{tmp_path.name}/{request.param}"
    return Place(
        f"{request.param}://{store.bucket}/{prefix}",
        lambda: [f"{request.param}://{name}" for name in store.files(prefix)],
    )
