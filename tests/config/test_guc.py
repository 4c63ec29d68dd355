"""The settings: defaults, ranges, and what the reference says of them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from config.guc import Settings, setting_docs


def test_defaults() -> None:
    settings = Settings()
    assert (settings.max_logical_replication_workers, settings.wal_receiver_timeout) == (4, 60.0)
    assert (settings.wal_retrieve_retry_interval, settings.spool_memory) == (5.0, 2**26)
    assert settings.copy_workers >= 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("wal_retrieve_retry_interval", 0),
        ("wal_receiver_timeout", "30d"),
        ("spool_memory", "1kB"),
        ("max_sync_workers_per_subscription", -1),
        ("lake_commit_workers", 0),
        ("wal_receiver_timeout", True),
        ("wal_receiver_timeout", [1]),
        ("no_such_setting", 1),
    ],
)
def test_out_of_range(name: str, value: object) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate({name: value})


def test_stored_text_means_the_same() -> None:
    settings = Settings.model_validate({"wal_retrieve_retry_interval": "1ms", "spool_memory": 100})
    assert settings.model_dump()["wal_retrieve_retry_interval"] == "1ms"
    assert Settings.model_validate(settings.model_dump()) == settings


def test_every_setting_is_described() -> None:
    docs = {doc.name: doc for doc in setting_docs()}
    assert docs.keys() == Settings.model_fields.keys()
    assert all(doc.description for doc in docs.values())
    assert (docs["wal_receiver_timeout"].default, docs["wal_receiver_timeout"].kind) == (
        "1min",
        "time",
    )
    assert (docs["spool_memory"].default, docs["spool_memory"].kind) == ("64MB", "size")


def test_a_switch() -> None:
    assert Settings().is_superuser
    for off in (False, "off", "false", 0):
        settings = Settings.model_validate({"is_superuser": off})
        assert not settings.is_superuser
        assert settings.model_dump()["is_superuser"] == "off"
    with pytest.raises(ValidationError, match='parameter "is_superuser" requires a Boolean value'):
        Settings.model_validate({"is_superuser": "perhaps"})
