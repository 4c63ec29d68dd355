import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from catalog.errcodes import InvalidParameterValue
from config.guc import (
    Settings,
    format_duration,
    format_memory,
    parse_duration,
    parse_memory,
    pretty_size,
    setting_docs,
)


@pytest.mark.parametrize(
    ("text", "base", "seconds"),
    [
        ("5s", "ms", 5.0),
        ("1ms", "ms", 0.001),
        (" 2 min ", "ms", 120.0),
        ("1.5h", "s", 5400.0),
        ("1d", "s", 86400.0),
        (5000, "ms", 5.0),
        (10, "s", 10.0),
        ("60", "s", 60.0),
        ("1500us", "ms", 0.002),
        ("0", "ms", 0.0),
    ],
)
def test_duration(text: str | int, base: str, seconds: float) -> None:
    assert parse_duration(text, base) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("64MB", 2**26), (64, 2**16), ("2GB", 2**31), ("1024B", 1024), ("1TB", 2**40)],
)
def test_memory(text: str | int, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (10239, "10239 bytes"),
        (10240, "10 kB"),
        (2**20, "1024 kB"),
        (10 * 2**20, "10 MB"),
        (16 * 2**30 + 2**25, "16 GB"),
        (2**50, "1024 TB"),
    ],
)
def test_a_size_as_pg_size_pretty_prints_it(size: int, text: str) -> None:
    assert pretty_size(size) == text


@pytest.mark.parametrize("text", ["", "s", "-1s", "5 apples", "1e3s", "0x10", "5S"])
def test_bad_duration(text: str) -> None:
    with pytest.raises(InvalidParameterValue, match="invalid value for parameter"):
        parse_duration(text)


def test_unknown_unit_names_the_known_ones() -> None:
    with pytest.raises(InvalidParameterValue) as caught:
        parse_memory("5mb", name="spool_memory")
    assert caught.value.primary == 'invalid value for parameter "spool_memory": "5mb"'
    assert caught.value.hint == (
        'Valid units for this parameter are "B", "kB", "MB", "GB", and "TB".'
    )


@given(st.integers(0, 2**31 - 1))
def test_show_is_read_back(value: int) -> None:
    assert parse_duration(format_duration(value / 1000)) == value / 1000
    assert parse_memory(format_memory(value * 1024)) == value * 1024


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
