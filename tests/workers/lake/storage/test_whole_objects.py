"""Small objects of S3: one request each by obstore, and all that is left to pyarrow."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest
from obstore.exceptions import GenericError

from catalog.errcodes import IoError
from config.monitor_limits import PYARROW_ALONE_SECONDS
from workers.lake.storage import whole_objects as module
from workers.lake.storage.bucket import Bucket, FileStore
from workers.lake.storage.gcs_access import GcsAccess
from workers.lake.storage.object_store import ObjectStore
from workers.lake.storage.s3_access import S3Access
from workers.lake.storage.store_access import StoreAccess
from workers.lake.storage.whole_objects import (
    GrowingObject,
    WholeObjects,
    is_plain,
    whole_objects,
)

BUCKET = Bucket(FileStore.S3, "bucket")
PATH = "s3://bucket/data/planted-name.parquet"
REFUSED = "<Error><Code>AccessDenied</Code><Message>planted</Message></Error>"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of the machine's would leave all to pyarrow."""
    for name in list(os.environ):
        if name.startswith("AWS_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    whole_objects.cache_clear()


class Played:
    """A store that is played: it keeps objects, and answers as it is told."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.headers: list[Any] = []
        self.refuses: Callable[[int], tuple[int, str] | None] = lambda _number: None
        self.waits: Callable[[int], object] = lambda _number: None
        self.endpoint = ""
        self.tag = ""

    def store(self, **more: Any) -> ObjectStore:
        access = S3Access("k", "planted-secret", "eu-central-1", self.endpoint, True, **more)
        return ObjectStore(BUCKET, access)


@contextmanager
def played() -> Iterator[Played]:
    playing = Played()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        received = b""

        def do_HEAD(self) -> None:
            playing.asked.append(f"HEAD {self.path}")
            self.send_response(200 if self.path in playing.objects else 404)
            self.send_header("Content-Length", f"{len(playing.objects.get(self.path, b''))}")
            self.send_header("ETag", '"e"')
            self.send_header("Last-Modified", "Mon, 30 Nov 2026 00:00:00 GMT")
            self.end_headers()

        def do_PUT(self) -> None:
            self.received = content = self.rfile.read(int(self.headers["Content-Length"]))
            if self._goes_on():
                playing.objects[self.path] = content
                self._answer(200, b"")

        def do_GET(self) -> None:
            if self._goes_on():
                first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
                found = playing.objects[self.path][first : last + 1]
                whole = f"bytes {first}-{first + len(found) - 1}/{len(playing.objects[self.path])}"
                self._answer(206, found, whole)

        def _goes_on(self) -> bool:
            number = len(playing.asked)
            playing.asked.append(f"{self.command} {self.path}")
            playing.headers.append(self.headers)
            playing.waits(number)
            if refused := playing.refuses(number):
                self._answer(refused[0], refused[1].encode())
            return not refused

        def _answer(self, status: int, content: bytes, content_range: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Length", f"{len(content)}")
            self.send_header(
                "ETag", playing.tag or f'"{md5(self.received, usedforsecurity=False).hexdigest()}"'
            )
            self.send_header("Last-Modified", "Mon, 30 Nov 2026 00:00:00 GMT")
            if content_range:
                self.send_header("Content-Range", content_range)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        playing.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        yield playing
        server.shutdown()


def write(store: ObjectStore, content: bytes = b"0123456789") -> None:
    with store.create(PATH, len(content)) as file:
        file.write(content)


def test_a_small_object_is_written_and_read_by_a_request_each() -> None:
    with played() as playing:
        store = playing.store()
        write(store)
        with store.open_input(PATH, 10) as file:
            assert file.read() == b"0123456789"
        with store.open_input(PATH, 4) as file:
            assert file.read() == b"0123"
        key = "/bucket/data/planted-name.parquet"
        assert playing.asked == [f"PUT {key}", f"GET {key}", f"GET {key}"]


def test_keys_and_address_are_the_table_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has others, and a token; every client of the store would look there."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "planted")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "planted")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with played() as playing:
        write(playing.store())
        write(playing.store(token="lent"))
        first, second = playing.headers
        assert "Credential=k/" in first["Authorization"]
        assert "eu-central-1/s3/" in first["Authorization"]
        assert "x-amz-security-token" not in first
        assert second["x-amz-security-token"] == "lent"


def test_an_answer_without_the_content_s_md5_is_checked() -> None:
    """A gateway that sends every request on to its page says 200, and keeps nothing."""
    with played() as playing:
        playing.tag = '"a page"'
        store = playing.store()
        write(store)
        assert [each.split()[0] for each in playing.asked] == ["PUT", "HEAD"]
        objects = whole_objects(BUCKET, store.access)
        assert objects is not None
        playing.refuses = lambda _number: (200, "a page")
        assert not objects.write("another", pa.py_buffer(b"0123456789"))


@pytest.mark.parametrize(
    "name",
    [
        "AWS_ENDPOINT_URL_S3",
        "AWS_S3_EXPRESS",
        "AWS_UNSIGNED_PAYLOAD",
        "AWS_SERVER_SIDE_ENCRYPTION",
        "HTTPS_PROXY",
        "all_proxy",
    ],
)
def test_a_variable_that_only_obstore_obeys_leaves_all_to_pyarrow(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("NO_PROXY", "localhost")
    assert whole_objects(BUCKET, S3Access("k", "s", "eu-central-1")) is not None
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert whole_objects(BUCKET, S3Access(name, "s", "eu-central-1")) is None


@pytest.mark.parametrize(
    "access",
    [
        None,
        GcsAccess(),
        S3Access(),
        S3Access("k", "s", endpoint="http://127.0.0.1:1"),
        S3Access("k", "s", "mars"),
        S3Access("k", "s", "cn-north-1"),
        S3Access("k\n", "s", "eu-west-1"),
        S3Access("k", "s", "eu-west-1", endpoint="http://a b"),
        S3Access("k", "s", "eu-west-1", endpoint="http://a:99999"),
        S3Access("k", "s", "eu-west-1", endpoint="http://10.0.0.5:9000"),
        S3Access("k", "s", "eu-west-1", endpoint="http://300.1.1.1", path_style=True),
        S3Access("k", "s", "eu-west-1", endpoint="http://minio.5", path_style=True),
        S3Access("k", "s", "eu-west-1", endpoint="http://xn--", path_style=True),
    ],
)
def test_pyarrow_has_what_is_not_certain(access: StoreAccess | None) -> None:
    assert whole_objects(BUCKET, S3Access("k", "s", "eu-west-1")) is not None
    assert whole_objects(BUCKET, access) is None


def test_a_task_on_a_cluster_may_lack_obstore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    assert whole_objects(BUCKET, S3Access("a task's", "s", "eu-central-1")) is None


def test_an_empty_name_hides_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python takes the small letters alone; obstore looks at both."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "")
    assert whole_objects(BUCKET, S3Access("k", "s", "eu-central-1")) is None


class Panic(BaseException):
    """As a panic of Rust's comes."""


Panic.__name__ = "PanicException"


class Refusing:
    """Obstore's store, with an error for each call; it counts the calls."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.calls = 0

    def put(self, *_: object, **__: object) -> None:
        self.calls += 1
        raise self.error

    get_range = put


@pytest.mark.parametrize(
    "error", [GenericError("planted"), ValueError("planted"), OSError(), Panic("planted")]
)
def test_pyarrow_is_asked_for_longer_and_longer_after_errors(error: BaseException) -> None:
    now = 100.0
    store: Any = Refusing(error)
    objects = WholeObjects(store, lambda: now)
    for calls in (1, 1, 2, 2, 2, 2, 3):
        assert not objects.write("a", pa.py_buffer(b"0"))
        assert objects.read("a", 1) is None
        assert store.calls == calls
        now += PYARROW_ALONE_SECONDS / 2


def test_a_signal_is_no_error_of_obstore_s() -> None:
    store: Any = Refusing(KeyboardInterrupt())
    objects = WholeObjects(store)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            objects.write("a", pa.py_buffer(b"0"))
    assert store.calls == 2


def test_a_panic_of_the_beginning_leaves_all_to_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_: object, **__: object) -> None:
        raise Panic

    monkeypatch.setattr("obstore.store.S3Store", panic)
    assert whole_objects(BUCKET, S3Access("k", "s", "eu-west-1")) is None
    whole_objects.cache_clear()


def test_a_missing_object_is_no_reason_to_leave_obstore() -> None:
    store: Any = Refusing(FileNotFoundError())
    objects = WholeObjects(store)
    assert objects.read("a", 1) is None
    assert objects.read("a", 1) is None
    assert store.calls == 2


def test_what_obstore_does_not_end_is_ended_by_pyarrow() -> None:
    """A store that refuses obstore, as one with a certificate of its own kind; and a frozen one."""
    with played() as playing:
        store = playing.store()
        playing.refuses = lambda number: (400, REFUSED) if number == 0 else None
        write(store)
        first, second = playing.headers
        assert "object_store" in first["User-Agent"]
        assert "object_store" not in second["User-Agent"]
        assert list(playing.objects.values()) == [b"0123456789"]


def test_an_error_is_told_by_pyarrow_and_nothing_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with played() as playing:
        playing.refuses = lambda _number: (403, REFUSED)
        with pytest.raises(IoError) as error:
            write(playing.store())
        assert error.value.code == "58030"
        assert "ACCESS_DENIED during PutObject" in (error.value.detail or "")
        assert "planted" not in error.value.report() + caplog.text
        assert playing.objects == {}


def test_a_frozen_store_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The object may have arrived: pyarrow writes the same once more."""
    monkeypatch.setattr(module, "OBSTORE_REQUEST_SECONDS", 0.3)
    thawed = threading.Event()
    with played() as playing:
        playing.waits = lambda number: number > 0 or thawed.wait(30)
        write(playing.store(token="another"))
        assert len(playing.asked) == 2
        thawed.set()


def test_a_busy_store_is_asked_again_in_a_long_life() -> None:
    with played() as playing:
        playing.refuses = lambda number: (503, "") if number % 2 == 0 else None
        store = playing.store()
        for _ in range(25):
            write(store)
            assert store.open_input(PATH, 10).read() == b"0123456789"
        assert all("object_store" in each["User-Agent"] for each in playing.headers)
        assert len(playing.asked) == 100


def test_a_signal_during_a_write_leaves_no_object(monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(WholeObjects, "write", interrupted)
    monkeypatch.setattr(ObjectStore, "remove", lambda _self, path: removed.append(path))
    with pytest.raises(KeyboardInterrupt):
        write(ObjectStore(BUCKET, S3Access("k", "s", "eu-west-1")))
    assert removed == [PATH]


@pytest.mark.parametrize(
    ("bucket", "access", "address"),
    [
        ("bkt", S3Access(region="eu-west-1"), "https://bkt.s3.eu-west-1.amazonaws.com"),
        ("bkt", S3Access(region="us-gov-west-1"), "https://bkt.s3.us-gov-west-1.amazonaws.com"),
        ("b.c", S3Access(region="eu-west-1"), "https://s3.eu-west-1.amazonaws.com"),
        ("b", S3Access(region="cn-north-1"), None),
        ("b", S3Access(region="us-iso-east-1"), None),
        ("b", S3Access(), None),
        ("b", S3Access(endpoint="http://h:9000/", path_style=True), "http://h:9000"),
        ("bucket", S3Access(endpoint="https://h.test"), "https://bucket.h.test"),
        ("bucket", S3Access(endpoint="h:9000"), "https://bucket.h:9000"),
        ("bucket", S3Access(endpoint="http://127.0.0.1:9"), None),
        ("My_Bucket", S3Access(endpoint="http://h"), None),
        ("MyBucket", S3Access(region="us-east-1"), "https://s3.us-east-1.amazonaws.com"),
        ("10.0", S3Access(endpoint="http://127.0.0.1:9", path_style=True), "http://127.0.0.1:9"),
    ],
)
def test_the_address_is_pyarrow_s(bucket: str, access: S3Access, address: str | None) -> None:
    assert access.address(Bucket(FileStore.S3, bucket)) == address


def test_a_key_that_obstore_would_change_is_pyarrow_s() -> None:
    assert is_plain("a/b=%2F/c d.parquet")
    for key in ("a//b", "/a", "a/", "a/./b", "../a", "", "a\nb", "a\x7f"):
        assert not is_plain(key)


def test_an_object_grows_out_of_memory() -> None:
    streams: list[pa.BufferOutputStream] = []

    def begin() -> Any:
        streams.append(pa.BufferOutputStream())
        return streams[-1]

    growing = GrowingObject(5, begin)
    growing.write(memoryview(b"012"))
    growing.write(pa.py_buffer(b"34"))
    assert (growing.tell(), growing.stream) == (5, None)
    growing.write(b"56")
    growing.write(b"7")
    [stream] = streams
    assert growing.tell() == 8
    assert stream.getvalue().to_pybytes() == b"01234567"
    small = GrowingObject(5, begin)
    small.write(b"01234")
    assert small.content().to_pybytes() == b"01234"
    assert len(streams) == 1
