"""A REST catalog whose requests are signed with AWS keys, and whose paths have a prefix.

The proxy before the catalog checks every signature by itself. It tells the prefix where a client
asks for the catalog's configuration, as the catalogs of AWS do, and knows no path without.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.harness import SETTINGS
from tests.integration.flow import Flow
from tests.lake.lake_stack import LakePgsub, LakeStack, lake_pgsub, lake_stack
from tests.lake.signatures import Signatures
from tests.processes import command_line
from tests.twin import NativeTwin

pytestmark = [pytest.mark.lake, pytest.mark.timeout(900)]

SIGNATURES = Signatures()
PREFIX = "/v1/catalogs/tests/"
KEYS = {
    "rest.auth.type": "sigv4",
    "rest.signing-region": SIGNATURES.region,
    "rest.signing-name": SIGNATURES.service,
    "rest.access-key-id": SIGNATURES.key,
}


def prefixed(path: str, content: bytes) -> bytes:
    """The catalog's configuration with the prefix."""
    if not path.startswith("/v1/config"):
        return content
    told = json.loads(content)
    told.setdefault("overrides", {})["prefix"] = PREFIX.removeprefix("/v1/").strip("/")
    return json.dumps(told).encode()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeStack]:
    with lake_stack(tmp_path_factory.mktemp("stack"), signatures=SIGNATURES) as running:
        running.catalog_proxy.prefix = PREFIX
        running.catalog_proxy.rewrite = prefixed
        yield running


@pytest.fixture(scope="module")
def flow(
    publisher: EmbeddedPublisher,
    twin: NativeTwin,
    stack: LakeStack,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Flow]:
    secret = {"rest.secret-access-key": SIGNATURES.secret}
    configured = {**stack.catalog_keys(), **KEYS, **secret}
    reader = stack.catalog_keys(uri=stack.catalog.uri)
    folder = tmp_path_factory.mktemp("signed")
    with (
        lake_pgsub(folder, reader, configured=configured) as pgsub,
        closing(Flow(pgsub, twin, publisher, "signed")) as flow,
    ):
        flow.both("CREATE TABLE t (id int PRIMARY KEY, v text)")
        flow.pub.run(
            "INSERT INTO t SELECT i, 'old' FROM generate_series(1, 5000) i",
            "CREATE PUBLICATION pub_signed FOR TABLE t",
        )
        flow.subscribe("sub", ["pub_signed"])
        flow.checkpoint("copied", "t")
        flow.pub.execute(
            "BEGIN; INSERT INTO t SELECT i, 'new' FROM generate_series(10000, 10099) i;"
            " UPDATE t SET v = v || '.' WHERE id % 10 = 1; DELETE FROM t WHERE id % 10 = 2; COMMIT"
        )
        flow.checkpoint("changed", "t")
        yield flow


@pytest.mark.parametrize("state", ["copied", "changed"])
def test_rows_are_those_of_the_publisher(flow: Flow, state: str) -> None:
    assert flow.same(state, "t")


def test_every_request_was_signed_and_had_the_prefix(flow: Flow, stack: LakeStack) -> None:
    paths = [path for _, path in stack.catalog_proxy.requests]
    assert len(SIGNATURES.seen) == len(paths) > 10
    assert {path.startswith((PREFIX, "/v1/config")) for path in paths} == {True}
    assert flow.pgsub.status("last_errors") == []


def test_the_secret_is_told_to_nobody(flow: Flow) -> None:
    logs = [path.read_text() for path in (flow.pgsub.data_dir / "log").iterdir() if path.is_file()]
    lines = ["\0".join(command_line(process)) for process in flow.pgsub.family()]
    assert logs
    assert lines
    assert not [each for each in logs + lines if SIGNATURES.secret in each]


def test_another_key_is_refused_by_name(flow: Flow, stack: LakeStack, tmp_path: Path) -> None:
    """The last test: its requests have no right signature."""
    pgsub = LakePgsub(tmp_path / "data")
    entry = {"connection": flow.pub.dsn, "publication": ["pub_signed"]}
    keys = {**KEYS, "rest.secret-access-key": "planted4secret", "rest.sigv4-enabled": "true"}
    del keys["rest.auth.type"]  # the older key asks for the same
    content = {
        "subscriptions": {"other": {**entry, "tables": {"signed.t": {"to": "other.t"}}}},
        "lake": {"catalog": {**stack.catalog_keys(), **keys}},
        "settings": SETTINGS,
    }
    done = pgsub.command("check", str(pgsub.file(content)), status=1, timeout=600)
    said = done.stdout + done.stderr
    assert "42501: the lake's catalog refused access" in said
    assert "planted4secret" not in said
