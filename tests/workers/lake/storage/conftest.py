"""The places that staged files and tables lie in: a folder, and buckets of a running store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lake.azurite_store import NO_NODE, Azurite, azurite, has_node
from tests.lake.fake_gcs import FakeGcs, fake_gcs
from tests.object_store import REGION, ObjectStore, object_store
from workers.lake.storage.adls_access import AdlsAccess
from workers.lake.storage.bucket import Bucket, FileStore
from workers.lake.storage.gcs_access import GcsAccess
from workers.lake.storage.object_store import ACCESS, bucket_file_system
from workers.lake.storage.s3_access import S3Access

SECRET = "planted-4c1dSecretKey"


@dataclass(frozen=True, slots=True)
class Place:
    """A location, the paths of the files below it, and a table's keys, if it has some."""

    location: str
    files: Callable[[], list[str]]
    access: S3Access | None = None


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


@pytest.fixture(scope="session")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeGcs]:
    """A store of Google's with one bucket."""
    with fake_gcs(tmp_path_factory.mktemp("gcs")) as running:
        yield running


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """An account of Azure's with one container."""
    if not has_node():
        pytest.skip(NO_NODE)
    with azurite(tmp_path_factory.mktemp("azure")) as running:
        yield running


@pytest.fixture
def on_google(google: FakeGcs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Place]:
    """A prefix of the bucket; the store is what a worker finds without keys."""
    access = GcsAccess(no_auth=True, endpoint=google.endpoint)
    monkeypatch.setitem(ACCESS, FileStore.GCS, lambda: access)
    prefix = f"gs://{google.bucket}/"
    yield Place(
        f"{prefix}{tmp_path.name}",
        lambda: [f"{prefix}{name}" for name in google.files(f"{tmp_path.name}/")],
    )
    bucket_file_system.cache_clear()


@pytest.fixture
def on_azure(azure: Azurite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Place]:
    """A prefix of the container; the account's key is what a worker finds without keys."""
    bucket = Bucket(FileStore.ADLS, azure.container, azure.host)
    access = AdlsAccess.of(bucket, azure.keys())
    monkeypatch.setitem(ACCESS, FileStore.ADLS, lambda: access)
    yield Place(
        azure.location(tmp_path.name),
        lambda: [azure.location(name) for name in azure.files(tmp_path.name)],
    )
    bucket_file_system.cache_clear()


@pytest.fixture(
    params=[
        "folder",
        "s3",
        "s3a",
        "s3 with keys",
        pytest.param("on_google", marks=pytest.mark.lake),
        pytest.param("on_azure", marks=pytest.mark.lake),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A folder, or a prefix of a bucket; a bucket of S3's under either of its two names."""
    if request.param == "folder":
        root = tmp_path / "shared"
        root.mkdir()
        return Place(str(root), lambda: sorted(str(p) for p in root.rglob("*") if p.is_file()))
    if request.param in ("on_google", "on_azure"):
        found: Place = request.getfixturevalue(request.param)
        return found
    store: ObjectStore = request.getfixturevalue("reachable_store")
    scheme, _, keys = request.param.partition(" ")
    prefix = f"{tmp_path.name}/{scheme}"
    return Place(
        f"{scheme}://{store.bucket}/{prefix}",
        lambda: [f"{scheme}://{name}" for name in store.files(prefix)],
        S3Access("key", SECRET, REGION, store.endpoint, path_style=True) if keys else None,
    )
