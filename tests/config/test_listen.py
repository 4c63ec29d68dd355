"""Addresses to listen on: nobody is reachable from elsewhere without having said so."""

from __future__ import annotations

import pytest

from catalog.errcodes import InvalidParameterValue
from config.guc import Settings
from config.listen import listen_address, parse_listen_address


@pytest.mark.parametrize(
    ("value", "found", "shown"),
    [
        ("off", None, "off"),
        (False, None, "off"),
        (9187, ("127.0.0.1", 9187), "127.0.0.1:9187"),
        ("9187", ("127.0.0.1", 9187), "127.0.0.1:9187"),
        ("0.0.0.0:80", ("0.0.0.0", 80), "0.0.0.0:80"),  # noqa: S104 (nothing is bound)
        ("[::1]:9187", ("::1", 9187), "[::1]:9187"),
        ("pod-7.svc:65535", ("pod-7.svc", 65535), "pod-7.svc:65535"),
    ],
)
def test_addresses(value: object, found: tuple[str, int] | None, shown: str) -> None:
    assert parse_listen_address(value, "metrics_listen") == found
    assert listen_address(value, "metrics_listen") == shown
    assert Settings.model_validate({"metrics_listen": value}).metrics_listen == shown
    assert parse_listen_address(shown, "metrics_listen") == found


@pytest.mark.parametrize(
    "value", [True, 0, 65536, "", "on", ":9187", "::1:9187", "a b:1", 1.5, "x"]
)
def test_other_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidParameterValue, match='parameter "metrics_listen"') as caught:
        parse_listen_address(value, "metrics_listen")
    assert "9187" in (caught.value.hint or "")
