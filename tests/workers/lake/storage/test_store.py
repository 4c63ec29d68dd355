"""The contract of TableStore, on a local disk and on each kind of object store."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.errcodes import IoError
from tests.workers.lake.storage.conftest import Place
from workers.lake.storage import object_store
from workers.lake.storage.choose_store import staging_store, store_for
from workers.lake.storage.object_store import ObjectStore
from workers.lake.storage.store import TableStore, for_each, remove_all


@pytest.fixture
def store(place: Place) -> TableStore:
    found = store_for(place.location)
    if place.access is not None:
        assert isinstance(found, ObjectStore)
        return replace(found, access=place.access)
    assert found is not None
    return found


def put(store: TableStore, path: str, content: bytes = b"content") -> str:
    with store.create(path, len(content)) as file:
        file.write(content)
    return path


def test_a_file_is_read_as_it_was_written(place: Place, store: TableStore) -> None:
    path = put(store, f"{place.location}/data/a.parquet", b"0123456789")
    assert place.files() == [path]
    assert store.size(path) == 10
    with store.open_input(path) as file:
        file.seek(3)
        assert (file.read(4), file.size()) == (b"3456", 10)


@pytest.mark.parametrize("at_once", [0, 100])
def test_a_file_of_known_size_is_read_as_it_was_written(
    place: Place, store: TableStore, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(object_store, "READ_AT_ONCE_BYTES", at_once)
    path = put(store, f"{place.location}/data/a.parquet", b"0123456789")
    with store.open_input(path, 10) as file:
        file.seek(3)
        assert (file.read(4), file.size()) == (b"3456", 10)
    with pytest.raises(IoError) as error, store.errors():
        store.open_input(f"{place.location}/data/b.parquet", 10).read()
    assert error.value.code == "58030"


def test_a_file_tells_its_size_while_it_is_written(place: Place, store: TableStore) -> None:
    for name, size in (("a", None), ("b", 8)):
        with store.create(f"{place.location}/{name}", size) as file:
            assert file.tell() == 0
            file.write(b"0123")
            assert file.tell() == 4


@pytest.mark.parametrize("size", [None, 1000])
def test_parquet_goes_through(place: Place, store: TableStore, size: int | None) -> None:
    rows = pa.table({"a": range(10_000)})
    path = f"{place.location}/data/a.parquet"
    with store.create(path, size) as file:
        pq.write_table(rows, file)
    with store.open_input(path) as file, pq.ParquetFile(file) as parquet:
        assert parquet.read() == rows


def test_a_file_may_be_larger_than_was_known(
    place: Place, store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "WRITE_AT_ONCE_BYTES", 10)
    path = f"{place.location}/data/a"
    with store.create(path, 4) as file:
        for part in (b"0123", b"45678", b"9", b"ab", b""):
            file.write(part)
        assert file.tell() == 12
    with store.open_input(path) as file:
        assert file.read() == b"0123456789ab"


@pytest.mark.parametrize(("size", "part"), [(None, b"half"), (4, b"half"), (4, b"half" * 5)])
def test_nothing_stays_of_a_block_that_raises(
    place: Place,
    store: TableStore,
    monkeypatch: pytest.MonkeyPatch,
    size: int | None,
    part: bytes,
) -> None:
    monkeypatch.setattr(object_store, "WRITE_AT_ONCE_BYTES", 10)

    def half() -> None:
        with store.create(f"{place.location}/a", size) as file:
            file.write(part)
            raise RuntimeError("torn")

    with pytest.raises(RuntimeError, match="torn"):
        half()
    assert place.files() == []


def test_an_error_of_the_block_s_is_one_of_the_store_s(place: Place, store: TableStore) -> None:
    with pytest.raises(IoError) as error, store.create(f"{place.location}/a"):
        raise OSError(28, "No space left on device", "/planted/name")
    assert (error.value.code, error.value.detail) == ("53100", "No space left on device.")
    assert "planted" not in error.value.report()
    assert place.files() == []


def test_a_missing_file_is_told_without_its_name(place: Place, store: TableStore) -> None:
    path = f"{place.location}/data/planted"
    for each in (
        lambda: store.open_input(path),
        lambda: store.size(path),
        lambda: store.copy(path, f"{path}2"),
    ):
        with pytest.raises(IoError) as error:
            each()
        assert error.value.code == "58030"
        assert "planted" not in error.value.report()


def test_a_copy_outlives_the_first_file(place: Place, store: TableStore) -> None:
    first, second = f"{place.location}/data/a", f"{place.location}/data/b"
    put(store, first, b"same")
    store.copy(first, second)
    store.remove(first)
    assert place.files() == [second]
    with store.open_input(second) as file:
        assert file.read() == b"same"


def test_what_is_not_there_is_removed_without_an_error(
    place: Place, store: TableStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.remove(f"{place.location}/none")
    store.remove_folder(f"{place.location}/none")
    store.remove_folders(f"{place.location}/none", "a")
    assert store.list_prefix(f"{place.location}/none", "a") == []
    assert not caplog.records


def test_files_of_one_prefix_are_listed(place: Place, store: TableStore) -> None:
    folder = f"{place.location}/data"
    paths = [put(store, f"{folder}/{name}") for name in ("pgsub-1-a", "pgsub-1-b", "pgsub-2-a")]
    put(store, f"{folder}/other/pgsub-1-a")
    assert sorted(store.list_prefix(folder, "pgsub-1")) == paths[:2]


def test_folders_of_one_prefix_are_removed_but_for_one(place: Place, store: TableStore) -> None:
    root = place.location
    paths = {name: put(store, f"{root}/{name}/deep/a") for name in ("1_a", "1_b", "11")}
    store.remove_folders(root, "1_", keep=f"{root}/1_b")
    assert place.files() == sorted([paths["1_b"], paths["11"]])
    store.remove_folder(f"{root}/11")
    assert place.files() == [paths["1_b"]]


def test_a_store_holds_what_is_below_its_location(place: Place, store: TableStore) -> None:
    assert store.holds(f"{place.location}/data/a")
    for elsewhere in ("hdfs://host/a", "s3://another/a", "gs://staging/a"):
        assert not store.holds(elsewhere)


def test_a_store_is_a_value_that_travels(place: Place) -> None:
    store = store_for(place.location)
    assert pickle.loads(pickle.dumps(store)) == store  # noqa: S301 - our own bytes
    assert store_for(place.location) == store


def test_a_name_is_the_same_for_all_calls(place: Place, store: TableStore) -> None:
    path = put(store, f"{place.location}/data/a=b%2Fc d#é+/x.parquet", b"0123")
    with store.open_input(path, 4) as file:
        assert file.read() == b"0123"
    assert store.size(path) == 4
    store.remove(path)
    with pytest.raises(IoError):
        store.open_input(path, 4)


def test_a_store_says_whether_small_reads_are_cheap(place: Place, store: TableStore) -> None:
    assert store.has_cheap_requests == place.location.startswith("/")


def test_many_files_are_removed_at_a_time(place: Place, store: TableStore) -> None:
    paths = [put(store, f"{place.location}/data/{n}") for n in range(40)]
    remove_all(store, [*paths, f"{place.location}/data/missing"])
    assert store.list_prefix(f"{place.location}/data", "") == []


def test_answers_come_in_order_and_started_calls_end_before_an_error(store: TableStore) -> None:
    ended: list[int] = []

    def act(number: int) -> int:
        if number == 3:
            raise KeyError
        ended.append(number)
        return number * 2

    assert for_each(store, act, [0, 1, 2]) == [0, 2, 4]
    with pytest.raises(KeyError):
        for_each(store, act, range(3, 8))
    known = list(ended)
    assert for_each(store, act, []) == []
    assert ended == known


def test_staged_files_are_in_the_same_store_with_errors_of_their_own(place: Place) -> None:
    store = staging_store(place.location)
    put(store, f"{place.location}/1_0_1/a.parquet")
    assert place.files() == [f"{place.location}/1_0_1/a.parquet"]
    with pytest.raises(IoError) as error:
        store.open_input(f"{place.location}/1_0_1/b.parquet")
    assert error.value.primary == "could not use the staging folder"


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    store = store_for(str(tmp_path))
    assert store is not None
    with (
        pytest.raises(IoError) as error,
        store.errors(),
        pa.OSFile("/dev/full", "wb") as file,
    ):
        file.write(b"x")
    assert (error.value.code, error.value.detail) == ("53100", "No space left on device.")


def test_making_files_durable_leaves_them_as_they_are(place: Place, store: TableStore) -> None:
    path = put(store, f"{place.location}/data/a.parquet")
    store.make_durable([place.location])
    assert place.files() == [path]
