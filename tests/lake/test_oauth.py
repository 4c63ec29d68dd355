"""A REST catalog that asks for a token: OAuth2, a bearer token, one that ends, and a wrong one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.harness import SETTINGS
from tests.integration.flow import Flow
from tests.lake.http_proxy import Tokens
from tests.lake.lake_stack import LakePgsub, LakeStack, lake_pgsub, lake_stack
from tests.twin import NativeTwin
from tests.waiting import wait_until

pytestmark = [pytest.mark.lake, pytest.mark.timeout(900)]

TOKENS = Tokens(seconds=20)
"""The client renews a token after nine tenths of its time."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeStack]:
    with lake_stack(tmp_path_factory.mktemp("stack"), TOKENS) as running:
        yield running


@pytest.fixture(scope="module")
def flow(
    publisher: EmbeddedPublisher,
    twin: NativeTwin,
    stack: LakeStack,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Flow]:
    login = {"credential": f"{TOKENS.client}:{TOKENS.secret}"}
    server = {"oauth2-server-uri": f"{stack.catalog_proxy.endpoint}/v1/oauth/tokens"}
    catalog = {**stack.catalog_keys(), **login, **server}
    with (
        lake_pgsub(tmp_path_factory.mktemp("oauth"), catalog) as pgsub,
        closing(Flow(pgsub, twin, publisher, "by_token")) as flow,
    ):
        flow.both("CREATE TABLE t (id int PRIMARY KEY, v text)")
        flow.pub.run(
            "INSERT INTO t SELECT i, 'old' FROM generate_series(1, 5000) i",
            "CREATE PUBLICATION pub_by_token FOR TABLE t",
        )
        flow.subscribe("sub", ["pub_by_token"])
        flow.checkpoint("copied", "t")
        yield flow


def change(flow: Flow, turn: int) -> None:
    flow.pub.execute(
        f"BEGIN; INSERT INTO t SELECT i, 'new' FROM generate_series({turn}0000, {turn}0099) i;"
        f" UPDATE t SET v = v || '.' WHERE id % 10 = {turn}; COMMIT"
    )


def test_a_token_is_renewed_before_it_ends(flow: Flow) -> None:
    """Tokens end while nobody needs them, too."""
    given = len(TOKENS.given)
    change(flow, 1)
    flow.checkpoint("renewed first", "t")
    wait_until(lambda: len(TOKENS.given) > given + 1, 90, lambda: TOKENS.given)
    change(flow, 2)
    flow.checkpoint("renewed", "t")
    assert flow.same("renewed", "t")
    assert flow.pgsub.status("last_errors") == []


def test_the_worker_goes_on_behind_tokens_that_ended_at_once(flow: Flow) -> None:
    """As after a restart of the catalog with another key."""
    TOKENS.valid.clear()
    change(flow, 3)
    flow.checkpoint("ended", "t")
    assert flow.same("ended", "t")


def test_the_secret_is_told_to_nobody(flow: Flow) -> None:
    logs = [path.read_text() for path in (flow.pgsub.data_dir / "log").iterdir() if path.is_file()]
    told = (TOKENS.secret, *TOKENS.given)
    assert logs
    assert not [log for log in logs if any(secret in log for secret in told)]


@pytest.mark.parametrize("known", [True, False])
def test_a_bearer_token(flow: Flow, stack: LakeStack, tmp_path: Path, known: bool) -> None:
    """A token of the user's is taken as it is; a wrong one is refused by name."""
    if known:
        TOKENS.valid.add("planted3token")
    pgsub = LakePgsub(tmp_path / "data")
    entry = {"connection": flow.pub.dsn, "publication": ["pub_by_token"]}
    content = {
        "subscriptions": {"other": {**entry, "tables": {"by_token.t": {"to": "other.t"}}}},
        "lake": {"catalog": stack.catalog_keys(token="planted3token" if known else "unknown3")},
        "settings": SETTINGS,
    }
    done = pgsub.command("check", str(pgsub.file(content)), status=int(not known), timeout=600)
    said = done.stdout + done.stderr
    assert ("42501: the lake's catalog refused access" in said) is not known
    assert "planted3token" not in said
