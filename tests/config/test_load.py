import json
from pathlib import Path

import pytest

from catalog.errcodes import ConfigFileError
from catalog.store_sqlite import CatalogStore
from config.guc import Settings
from config.load import from_stored, json_schema, load, options_table, parse, settings_table

SAMPLES = Path(__file__).parents[2] / "config" / "samples"
SUB = "subscriptions: {s: {connection: host=db, publication: p}}\n"


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_samples_load(path: Path) -> None:
    assert load(path).subscriptions[0].name == "mysub"


def test_complete_sample_shows_every_key_and_default() -> None:
    complete, smallest = load(SAMPLES / "complete.yaml"), load(SAMPLES / "subscription.yaml")
    assert set(complete.settings.model_fields_set) == set(Settings.model_fields)
    defaults = Settings(copy_workers=2)
    assert complete.settings == defaults
    opts = complete.subscriptions[0].options
    assert opts.specified == frozenset(opts.__slots__) - {"specified"}
    for name in opts.specified:
        assert getattr(opts, name) == getattr(smallest.subscriptions[0].options, name)


def test_schema_of_the_editors_is_up_to_date() -> None:
    assert json.loads((SAMPLES / "pgsub.schema.json").read_text()) == json_schema()


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("/mnt/shared", "/mnt/shared"),
        ("/mnt/with space/", "/mnt/with space"),
        ("s3://bucket/pre/fix", "s3://bucket/pre/fix"),
        ("s3a://my-bucket.x/a=1/", "s3a://my-bucket.x/a=1"),
        ("gs://my_bucket/x", "gs://my_bucket/x"),
        ("/.a/...", "/.a/..."),
    ],
)
def test_places_for_staged_rows(written: str, place: str) -> None:
    assert parse(f"{SUB}spark: {{staging: '{written}'}}\n", "f").spark.staging == place


@pytest.mark.parametrize(
    "written",
    ["", "folder", "./x", "//x", "s3://bucket", "s3://bucket/", "s3://AKIA:planted@bucket/x",
     "s3://bucket/x?access_key=planted", "s3://bucket/x*", "gcs://bucket/planted", "file:///x",
     "/", "/x//y", "/x/./y", "/x/..", "/../x/", "s3://bucket/./x", "s3://bucket/x/.."],
)  # fmt: skip
def test_places_that_are_refused_are_not_shown(written: str) -> None:
    with pytest.raises(ConfigFileError) as error:
        parse(f"{SUB}spark: {{staging: '{written}'}}\n", "f")
    assert error.value.code == "22023"
    assert "planted" not in error.value.report()


@pytest.mark.parametrize(("written", "version"), [("2", 2), ("3", 3), ("'3'", 3), (None, 2)])
def test_formats_of_new_tables(written: str | None, version: int) -> None:
    text = SUB if written is None else f"{SUB}lake: {{format_version: {written}}}\n"
    assert parse(text, "f").lake.format_version == version


@pytest.mark.parametrize("written", ["1", "4", "v3", "3.0", "true", "null", "[3]", "''"])
def test_formats_that_there_are_not(written: str) -> None:
    with pytest.raises(ConfigFileError, match='value for parameter "format_version"') as error:
        parse(f"{SUB}lake: {{format_version: {written}}}\n", "f")
    assert error.value.code == "22023"
    assert error.value.hint == "Available values: 2, 3."


def test_tables_of_the_reference() -> None:
    assert "| `wal_retrieve_retry_interval` | time | 5s |" in settings_table()
    assert "| `streaming` | parallel |" in options_table()
    assert len(options_table().splitlines()) == 16


@pytest.mark.parametrize(
    ("text", "line", "key", "said"),
    [
        (SUB + "nosuch: 1\n", 2, "nosuch", 'unrecognized key "nosuch"'),
        (SUB + "settings:\n  nosuch: 1\n", 3, "settings.nosuch", 'unrecognized key "nosuch"'),
        (SUB + "settings: 5\n", 2, "settings", "must be a mapping of keys to values"),
        (SUB + "settings:\n  copy_workers: x\n", 3, "settings.copy_workers", "whole number"),
        (SUB + "settings:\n  spool_memory: 1b\n", 3, "settings.spool_memory", "invalid value"),
        (SUB + "settings:\n  spool_memory: 1B\n", 3, "settings.spool_memory", "outside the valid"),
        (SUB + "lake:\n  format: delta\n", 3, "lake.format", "not supported yet"),
        (SUB + "lake:\n  format: hudi\n", 3, "lake.format", 'invalid value for parameter "format"'),
        (SUB + "lake:\n  format_version: 1\n", 3, "lake.format_version", 'value for parameter "f'),
        (SUB + "spark:\n  remote: http://x\n", 3, "spark.remote", "does not begin with"),
        (
            SUB + "spark:\n  remote: sc://x\n  commit_service: on\n",
            4,
            "spark.commit_service",
            'invalid value for parameter "commit_service": "on"',
        ),
        (SUB + "spark:\n  staging: s3://k:s@x/y\n", 3, "spark.staging", "neither an absolute path"),
        (
            SUB + "lake:\n  catalog:\n    type: jdbc\n    warehouse: warehouse\n",
            5,
            "lake.catalog.warehouse",
            "neither an absolute path nor a URI",
        ),
        (
            SUB + "lake:\n  catalog:\n    type: jdbc\n    uri: jdbc:sqlite:cat.db\n",
            5,
            "lake.catalog.uri",
            "the path of the SQLite file is not absolute",
        ),
        ("subscriptions:\n  s:\n    publication: p\n", 2, "subscriptions.s.connection", "missing"),
        (
            "subscriptions:\n  s:\n    connection: 1\n    publication: p\n",
            3,
            "subscriptions.s.connection",
            "requires",
        ),
        (
            "subscriptions:\n  s:\n    connection: ''\n    publication:\n    - on\n",
            5,
            "subscriptions.s.publication.0",
            "must be text",
        ),
        (
            "subscriptions:\n  s:\n    connection: ''\n    publication: []\n",
            4,
            "subscriptions.s.publication",
            "must not be empty",
        ),
        (
            "subscriptions:\n  s:\n    connection: host\n    publication: p\n",
            3,
            "subscriptions.s.connection",
            "invalid connection string syntax",
        ),
        ("subscriptions:\n", 1, "subscriptions", "must be a mapping"),
        ("settings: {}\n", 1, "subscriptions", "is missing"),
        ("- a\n", 1, "top level", "must be a mapping"),
        ("just text\n", 1, "top level", "must be a mapping"),
        (SUB + "settings: {}\nsettings: {}\n", 3, "settings", "is there twice"),
        ("subscriptions: &a\n  s: *a\n", 2, "subscriptions.s", "must not contain itself"),
        (SUB + "spark: {conf: {a: [1]}}\n", 2, "spark.conf.a", "must be text"),
    ],
)
def test_place_of_a_mistake(text: str, line: int, key: str, said: str) -> None:
    with pytest.raises(ConfigFileError) as caught:
        parse(text, "my.yaml")
    place = f'configuration file "my.yaml", line {line}, key "{key}": '
    assert caught.value.primary.startswith(place)
    assert said in caught.value.primary


def test_no_subscription_is_fine() -> None:
    assert parse("subscriptions: {}", "my.yaml").subscriptions == []


def test_duplicate_subscription() -> None:
    text = "subscriptions:\n  s: {connection: '', publication: p}\n  s: {}\n"
    with pytest.raises(ConfigFileError) as caught:
        parse(text, "my.yaml")
    assert caught.value.code == "42710"
    assert caught.value.primary == (
        'configuration file "my.yaml", line 3, key "subscriptions.s":'
        ' subscription "s" already exists'
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("subscriptions: {s: [}\n", 1),
        ("a: b\n\tc: d\n", 2),
        ("a: 'b\n", 2),
        ("a: *nowhere\n", 1),
        ("a: !!python/object:os.system {}\n", 1),
        ("a: 1\n---\nb: 2\n", 2),
    ],
)
def test_not_yaml(text: str, line: int) -> None:
    with pytest.raises(ConfigFileError, match="not YAML") as caught:
        parse(text, "my.yaml")
    assert f'configuration file "my.yaml", line {line}' in caught.value.primary
    assert caught.value.code == "F0000"


@pytest.mark.parametrize("text", ["", "# nothing\n", "\0", "a: 2026-13-45\n", "{" * 5000])
def test_nothing_usable(text: str) -> None:
    with pytest.raises(ConfigFileError):
        parse(text, "my.yaml")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError, match="No such file or directory"):
        load(tmp_path / "missing.yaml")
    (tmp_path / "latin1.yaml").write_bytes("# é".encode("latin-1"))
    with pytest.raises(ConfigFileError, match="not UTF-8"):
        load(tmp_path / "latin1.yaml")


def test_all_mistakes_at_once() -> None:
    with pytest.raises(ConfigFileError) as caught:
        parse(SUB + "settings:\n  nosuch: 1\n  copy_workers: x\n", "my.yaml")
    assert "line 3" in caught.value.primary
    assert "line 4" in (caught.value.detail or "")
    assert "Known keys: apply_work_mem, auto_recopy_max_bytes, " in (caught.value.hint or "")


def test_known_keys_of_a_subscription() -> None:
    with pytest.raises(ConfigFileError) as caught:
        parse("subscriptions: {s: {connection: '', publication: p, publish: x}}", "my.yaml")
    assert caught.value.hint == (
        "Known keys: connection, messages_to, password_command, password_command_ttl, "
        "password_env, publication, refresh, sync_slot, tables, with."
    )


def test_errors_hold_no_values() -> None:
    texts = [
        "subscriptions: {s: {connection: [host=db password=secret], publication: p}}",
        "subscriptions: {s: {connection: 'host=db password=''secret', publication: p}}",
        "subscriptions: {s: {connection: 'postgresql://u:secret', publication: p}}",
        "subscriptions: {s: {connection: password=secret: x}}",
    ]
    for text in texts:
        with pytest.raises(ConfigFileError) as caught:
            parse(text, "my.yaml")
        assert "secret" not in caught.value.report()


def test_what_the_catalog_keeps_means_the_same() -> None:
    text = SUB + (
        "settings: {wal_retrieve_retry_interval: 1ms, spool_memory: 1GB}\n"
        "lake: {format_version: 3, catalog: {type: jdbc, clients: 3}}\nspark: {conf: {a: true}}\n"
    )
    config = parse(text, "my.yaml")
    store = CatalogStore.open(":memory:")
    store.put_settings(config.stored())
    again = from_stored(store.settings())
    assert (again.settings, again.lake, again.spark) == (config.settings, config.lake, config.spark)
    assert again.spark.conf == {"a": "true"}
    assert again.lake.catalog == {"type": "jdbc", "clients": "3"}
    assert again.lake.format_version == 3
    store.close()
    assert from_stored({}).settings == Settings()


def test_a_connection_s_files_lie_beside_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("subscriptions: {s: {connection: sslrootcert=r.pem, publication: p}}")
    [statement] = load(path).subscriptions
    assert statement.connection.text == f"sslrootcert={tmp_path}/r.pem"
