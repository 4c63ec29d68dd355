"""The gateway: how a worker finds it, and what its errors are to a worker."""

from __future__ import annotations

import pytest

from catalog.errcodes import RequiredProcessGone
from tests.fix_lake import Lake
from workers.lake.api import gateway
from workers.lake.api.gateway import Gateway, gateway_of
from workers.lake.connect.errors import LakeFailure
from workers.lake.connect.lake_url import COMMIT_SERVICE, GATEWAY, with_commit_service
from workers.lake.connect.session import channel_builder

SECRET = "0a.b=c"
NO_SOCKET = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def test_a_url_says_where_the_gateway_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, str, bool]] = []

    def note(port: int, secret: str, *, beside: bool) -> object:
        asked.append((port, secret, beside))
        return object()

    monkeypatch.setattr(gateway, "Gateway", note)
    url = "sc://localhost:7/;token=t"
    assert gateway_of(f"{url};{GATEWAY}=4711.{SECRET}") is not None
    assert gateway_of(f"sc://localhost:7/;{GATEWAY}=4712.x;token=t") is not None
    beside = with_commit_service("sc://theirs:1", f"{url};{GATEWAY}=4713.{SECRET}")
    assert gateway_of(beside) is not None
    assert asked == [(4711, SECRET, False), (4712, "x", False), (4713, SECRET, True)]
    for other in (url, "sc://localhost:7", f"sc://{GATEWAY}:7/;token={GATEWAY}"):
        assert gateway_of(other) is None


def test_the_gateway_of_a_commit_service_is_a_parameter_of_the_spark_server_s_url() -> None:
    own = f"sc://localhost:7/;token=ours;{GATEWAY}=4711.secret"
    added = f"{COMMIT_SERVICE}=4711.secret"
    for remote, url in (
        ("sc://theirs:1", f"sc://theirs:1/;{added}"),
        ("sc://theirs:1/", f"sc://theirs:1/;{added}"),
        ("sc://theirs:1/;token=t", f"sc://theirs:1/;token=t;{added}"),
    ):
        assert with_commit_service(remote, own) == url
        assert channel_builder(url).metadata() == channel_builder(remote).metadata()
    assert with_commit_service("sc://theirs:1", "sc://localhost:7/;token=t") == "sc://theirs:1"


@NO_SOCKET
@pytest.mark.usefixtures("left_sockets")
def test_where_nobody_listens_the_lake_server_is_gone(closed_port: int) -> None:
    alone = Gateway(closed_port, SECRET)
    with pytest.raises(RequiredProcessGone) as error, alone.api("reading"):
        raise AssertionError("the gateway answered")
    assert error.value.code == "08006"
    assert error.value.primary == "lost the lake server while reading"
    assert SECRET not in error.value.report()
    alone.close()


@NO_SOCKET
@pytest.mark.usefixtures("left_sockets")
def test_one_with_another_secret_gets_no_answer(lake_server: Lake) -> None:
    port = lake_server.url.split(f";{GATEWAY}=")[1].split(".")[0]
    stranger = Gateway(int(port), SECRET)
    with pytest.raises(RequiredProcessGone), stranger.api("reading"):
        raise AssertionError("the gateway answered")
    stranger.close()


def test_what_java_says_may_be_a_value_and_is_not_shown(lake_gateway: Gateway) -> None:
    with pytest.raises(LakeFailure) as error, lake_gateway.translated("reading"):
        lake_gateway.connections.jvm.java.lang.Integer.parseInt("s3cret")
    assert error.value.detail == "NumberFormatException."
    assert "s3cret" in error.value.message
    assert "s3cret" not in error.value.report()
