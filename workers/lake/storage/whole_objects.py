"""Small objects of S3, or of a compatible store: each is one request, through obstore.

A batch writes many small files. Pyarrow reads a small object by two requests, of which the first
asks for the size. For each upload pyarrow takes 10 MB of memory, and fills them with zeros behind
the content: processor time that other uploads wait for. Measured with 70 objects of 3 KB, 32 at a
time, each request 30 ms longer; memory on top of the process's own::

               written            read
    pyarrow    0.28 s   440 MB    0.20 s
    obstore    0.12 s    65 MB    0.11 s

Pyarrow has all the rest: large objects, listings, copies and removals, and every object of

* a table without keys and region of its own: only pyarrow asks a profile;
* a process whose environment names a proxy, which pyarrow does not use, or has a variable of AWS's
  that obstore would obey and pyarrow would not (``_has_other_settings``);
* a place whose address is not certain (``S3Access.address``).

Obstore never has the last word. A request that obstore does not bring to an end is made by pyarrow,
with pyarrow's patience and words, and for PYARROW_ALONE_SECONDS pyarrow has all requests of the
bucket, longer and longer until obstore succeeds: the certificate of a store may be one that only
pyarrow takes, or the line too slow for OBSTORE_REQUEST_SECONDS. A write that is made twice has the
same name and content. The store's answer must tell the content's MD5, or else the object's size is
asked for: obstore follows a redirection to any page, and takes the page for an answer.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from hashlib import md5
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.request import getproxies

import pyarrow as pa

from config.monitor_limits import (
    LENT_KEY_SESSIONS,
    LONGEST_PYARROW_ALONE_SECONDS,
    OBSTORE_CONNECT_SECONDS,
    OBSTORE_FIRST_PAUSE_SECONDS,
    OBSTORE_IDLE_CONNECTION_SECONDS,
    OBSTORE_LONGEST_PAUSE_SECONDS,
    OBSTORE_REPEATED_ATTEMPTS,
    OBSTORE_REQUEST_SECONDS,
    PYARROW_ALONE_SECONDS,
    STORE_THREADS,
)
from workers.lake.storage.bucket import Bucket
from workers.lake.storage.s3_access import S3Access
from workers.lake.storage.store_access import StoreAccess

if TYPE_CHECKING:
    from obstore.store import S3Store

log = logging.getLogger(__name__)

_OCTET: Final = "(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
_NAME: Final = "(?!xn--)[A-Za-z0-9_-]+"
_ADDRESS: Final = re.compile(
    rf"https?://(({_OCTET}\.){{3}}{_OCTET}|({_NAME}\.)*(?!xn--)[A-Za-z][A-Za-z0-9-]*)"
    r"(:[0-9]{1,4}|:[1-5][0-9]{4})?"
)
"""Obstore panics at other hosts, such as 300.1.1.1, and takes others apart than pyarrow does."""
_HARMLESS: Final = frozenset(
    {
        "AWS_ACCESS_KEY_ID",
        "AWS_ACCOUNT_ID",
        "AWS_CA_BUNDLE",
        "AWS_CONFIG_FILE",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_DEFAULT_OUTPUT",
        "AWS_DEFAULT_REGION",
        "AWS_EC2_METADATA_DISABLED",
        "AWS_ENDPOINT_URL",
        "AWS_EXECUTION_ENV",
        "AWS_MAX_ATTEMPTS",
        "AWS_PAGER",
        "AWS_PROFILE",
        "AWS_REGION",
        "AWS_REQUEST_CHECKSUM_CALCULATION",
        "AWS_RESPONSE_CHECKSUM_VALIDATION",
        "AWS_RETRY_MODE",
        "AWS_ROLE_ARN",
        "AWS_ROLE_SESSION_NAME",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_STS_REGIONAL_ENDPOINTS",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
    }
)
"""Variables of AWS's that change no request of obstore's, beside the arguments given here."""


class WholeObjects:
    """Read and write small objects of a bucket. Keys are without the bucket's name.

    None or False is the answer where pyarrow has to make the request.
    """

    def __init__(self, store: S3Store, clock: Callable[[], float] = monotonic) -> None:
        self._store = store
        self._clock = clock
        self._pyarrow_until = 0.0
        self._pause = PYARROW_ALONE_SECONDS

    def read(self, key: str, size: int) -> pa.Buffer | None:
        """The first ``size`` bytes of an object, or the whole of a shorter one."""
        found: pa.Buffer | None = None
        if size and self._may_ask(key):
            with self._resting():
                found = pa.py_buffer(self._store.get_range(key, start=0, length=size))
        return found

    def write(self, key: str, content: pa.Buffer) -> bool:
        """Write an object, in place of another of the same key. False: it may be there or not."""
        done = False
        if self._may_ask(key):
            with self._resting():
                data = memoryview(content).cast("B")
                tag = self._store.put(key, data, use_multipart=False)["e_tag"] or ""
                is_sure = tag.strip('"') == md5(data, usedforsecurity=False).hexdigest()
                done = is_sure or self._store.head(key)["size"] == data.nbytes
        return done

    def _may_ask(self, key: str) -> bool:
        return is_plain(key) and self._clock() >= self._pyarrow_until

    @contextmanager
    def _resting(self) -> Iterator[None]:
        """Leave the bucket to pyarrow for a while after an error, and longer after the next one.

        A missing object is no reason. The text of an error would name host and key.
        """
        try:
            yield
        except FileNotFoundError:
            return
        except BaseException as error:
            _check_that_obstore_failed(error)
            now = self._clock()
            if now >= self._pyarrow_until:  # the first of those that ran together
                self._pyarrow_until = now + self._pause
                self._pause = min(2 * self._pause, LONGEST_PYARROW_ALONE_SECONDS)
            log.debug("action=small_objects a request is left to pyarrow: %s", type(error).__name__)
        else:
            self._pause = PYARROW_ALONE_SECONDS


def _check_that_obstore_failed(error: BaseException) -> None:
    """Raise the error again if obstore has nothing to do with it: a signal, an exit.

    A panic of Rust's is no ``Exception``, and its class can only be told by name.
    """
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error


def is_plain(key: str) -> bool:
    """Does a key stand for itself? Obstore refuses some characters, and parts that are dots."""
    return key.isprintable() and all(part not in ("", ".", "..") for part in key.split("/"))


@lru_cache(LENT_KEY_SESSIONS)
def whole_objects(bucket: Bucket, access: StoreAccess | None) -> WholeObjects | None:
    """The small objects of a bucket; None where pyarrow has them, see the module."""
    if not isinstance(access, S3Access) or not access.key or not access.region:
        return None
    if _has_other_settings():
        return None
    address = access.address(bucket)
    words = (bucket.name, access.key, access.secret, access.token, access.region)
    if address is None or not _ADDRESS.fullmatch(address) or not all(map(str.isprintable, words)):
        return None
    keys: Any = {
        "access_key_id": access.key,
        "secret_access_key": access.secret,
        "token": access.token or None,
        "expires_at": None,
    }
    try:
        from obstore.store import S3Store

        store = S3Store(
            bucket.name,
            endpoint=address,
            region=access.region,
            virtual_hosted_style_request=not access.is_path_style(bucket),
            # Obstore reads the environment for all that is not said here. Keys come by a function,
            # because keys as arguments would leave the environment's token in force.
            skip_signature=False,
            credential_provider=lambda: keys,
            client_options={
                "allow_http": address.startswith("http://"),
                "connect_timeout": timedelta(seconds=OBSTORE_CONNECT_SECONDS),
                "timeout": timedelta(seconds=OBSTORE_REQUEST_SECONDS),
                "pool_idle_timeout": timedelta(seconds=OBSTORE_IDLE_CONNECTION_SECONDS),
                "pool_max_idle_per_host": f"{STORE_THREADS}",
            },
            retry_config={
                "max_retries": OBSTORE_REPEATED_ATTEMPTS,
                "retry_timeout": timedelta(seconds=OBSTORE_REQUEST_SECONDS),
                "backoff": {
                    "init_backoff": timedelta(seconds=OBSTORE_FIRST_PAUSE_SECONDS),
                    "max_backoff": timedelta(seconds=OBSTORE_LONGEST_PAUSE_SECONDS),
                    "base": 2,
                },
            },
        )
    except BaseException as error:
        _check_that_obstore_failed(error)
        log.debug("action=small_objects pyarrow has the bucket: %s", type(error).__name__)
        return None
    return WholeObjects(store)


def _has_other_settings() -> bool:
    """Does the environment say something that obstore would obey, and pyarrow not?

    A proxy's name may be in small letters or in capitals. Elsewhere than in the environment, only
    Python's own list says whether there is one.
    """
    for name, value in os.environ.items():
        is_proxy = name.lower().endswith("_proxy") and name.lower() != "no_proxy"
        if (is_proxy and value) or (name.startswith("AWS_") and name not in _HARMLESS):
            return True
    return bool(getproxies().keys() - {"no"})


class GrowingObject:
    """A new object as a file: in memory up to ``limit`` bytes, then a stream of parts.

    ``stream`` is None as long as all is in memory.
    """

    closed = False

    def __init__(self, limit: int, open_stream: Callable[[], Any]) -> None:
        self._limit = limit
        self._open_stream = open_stream
        self._memory = pa.BufferOutputStream()
        self.stream: Any = None

    def write(self, data: Any) -> int:
        """Take bytes; returns their number."""
        size = memoryview(data).nbytes
        if self.stream is None and self._memory.tell() + size > self._limit:
            self.stream = self._open_stream()
            self.stream.write(self._memory.getvalue())
        (self._memory if self.stream is None else self.stream).write(data)
        return size

    def tell(self) -> int:
        """The bytes written so far."""
        return int((self._memory if self.stream is None else self.stream).tell())

    def flush(self) -> None:
        """Do nothing: an object is complete from its closing on."""

    def content(self) -> pa.Buffer:
        """All that was written, as long as ``stream`` is None. No write may follow."""
        return self._memory.getvalue()
