"""Glue as the catalog, as docs/catalogs/glue.md has it, and tables on S3 in the same server.

The server is moto's, which checks signatures and rights: pgsub's key may do what the page lists and
nothing else. The keys come from the environment of ``pgsub up``, as AWS's clients take them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.harness import SETTINGS, python_rows
from tests.integration.flow import Flow
from tests.integration.readers import by_spark
from tests.lake import glue_server
from tests.lake.catalog_flow import TABLES, catalog_flow
from tests.lake.lake_stack import LakePgsub, lake_pgsub
from tests.object_store import REGION, Keys, ObjectStore, object_store
from tests.ports import free_port
from tests.security.argument_watch import ArgumentWatch
from tests.twin import NativeTwin, native_rows

pytestmark = [pytest.mark.lake, pytest.mark.timeout(900)]

PAGE = Path(__file__).parents[2] / "docs" / "catalogs" / "glue.md"
ACTIONS = sorted(set(re.findall(r"`((?:glue|s3):[A-Z]\w+)`", PAGE.read_text(encoding="utf-8"))))
"""The rights that the page asks for."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    program = [str(glue_server.__file__)]
    with object_store(tmp_path_factory.mktemp("aws"), strict=True, program=program) as running:
        yield running


@pytest.fixture(scope="module")
def users(server: ObjectStore) -> dict[str, Keys]:
    """``pgsub`` may do what the page lists; the others lack a right of Glue's or of S3's."""
    lacking = {
        "pgsub": "",
        "no update": "glue:UpdateTable",
        "no tables": "glue:CreateTable",
        "no files": "s3:PutObject",
    }
    made = {
        name: server.user(name.replace(" ", "-"), [each for each in ACTIONS if each != lacks])
        for name, lacks in lacking.items()
    }
    server.begin_to_check()
    return made


def catalog_of(server: ObjectStore) -> dict[str, str]:
    return {
        "type": "glue",
        "warehouse": f"s3://{server.bucket}/warehouse",
        "client.region": REGION,
        "glue.endpoint": server.endpoint,
        "s3.endpoint": server.endpoint,
        "s3.path-style-access": "true",
    }


def environment(keys: Keys) -> dict[str, str]:
    """The keys, and nothing else of AWS: what a person exports before ``pgsub up``."""
    return {
        "AWS_ACCESS_KEY_ID": keys.key,
        "AWS_SECRET_ACCESS_KEY": keys.secret,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@pytest.fixture(scope="module")
def flow(
    publisher: EmbeddedPublisher,
    twin: NativeTwin,
    server: ObjectStore,
    users: dict[str, Keys],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Flow]:
    keys, catalog = users["pgsub"], catalog_of(server)
    reader = {
        **catalog,
        "s3.access-key-id": keys.key,
        "s3.secret-access-key": keys.secret,
        "glue.access-key-id": keys.key,
        "glue.secret-access-key": keys.secret,
        "glue.region": REGION,
    }
    folder = tmp_path_factory.mktemp("glue")
    with (
        ArgumentWatch(keys) as watch,
        lake_pgsub(folder, reader, configured=catalog, env=environment(keys)) as pgsub,
        catalog_flow(pgsub, twin, publisher, "on_glue") as played,
    ):
        played.facts["told"] = watch.told
        yield played


@pytest.mark.parametrize("label", ["copied", "changed"])
@pytest.mark.parametrize("table", TABLES)
def test_pyiceberg_sees_the_rows_of_the_native_subscriber(
    flow: Flow, table: str, label: str
) -> None:
    assert flow.same(label, table)


@pytest.mark.parametrize("table", TABLES)
def test_spark_sees_the_rows_of_the_native_subscriber(flow: Flow, table: str) -> None:
    assert python_rows(by_spark(flow.pgsub, flow.name, table)) == native_rows(flow.sub, table)


def test_the_tables_are_glue_s_and_keep_branches(
    flow: Flow, server: ObjectStore, users: dict[str, Keys]
) -> None:
    glue = server.client("glue", users["pgsub"])
    found = glue.get_tables(DatabaseName=flow.name)["TableList"]
    assert sorted(each["Name"] for each in found) == sorted(TABLES)
    assert {each["Parameters"]["table_type"] for each in found} == {"ICEBERG"}
    branches = flow.pgsub.iceberg_table(flow.name, "orders").metadata.refs
    assert [name for name in branches if name != "main"]


def test_the_worker_wrote_the_files(
    flow: Flow, server: ObjectStore, users: dict[str, Keys]
) -> None:
    del flow
    files = server.files("warehouse", users["pgsub"])
    assert [name for name in files if "/data/pgsub-" in name and name.endswith("-deletes.parquet")]


def test_the_keys_are_told_to_nobody(flow: Flow, users: dict[str, Keys]) -> None:
    """Not in argument lists, logs and status, and in no file of the data directory."""
    keys = users["pgsub"]
    assert flow.facts["told"] == []
    shown = json.dumps([flow.pgsub.status(view) for view in ("pg_subscription", "last_errors")])
    files = [path for path in flow.pgsub.data_dir.rglob("*") if path.is_file()]
    said = [path.read_bytes() for path in (*files, flow.pgsub.log_file)]
    for secret in keys:
        assert not [text for text in (*said, shown.encode()) if secret.encode() in text]


@pytest.mark.parametrize(
    ("user", "words", "more"),
    [
        ("pgsub", "could be created", ""),
        ("unknown", "42501: the lake's catalog refused the key", "Correct the key"),
        ("wrong secret", "42501: the lake's catalog refused the key", "Correct the key"),
        ("no update", "42501: the lake's catalog refused a right", "glue:UpdateTable."),
        ("no tables", "42501: the lake's catalog refused a right", "glue:CreateTable."),
        ("no files", "58030: the lake's store refused a right", "s3:PutObject"),
        ("no bucket", "58030: the lake's store has no bucket of the warehouse's name", ""),
        ("nobody listens", "08001: the lake's store or catalog could not be reached", "endpoint"),
    ],
)
def test_check_says_what_glue_or_the_store_refuses(
    flow: Flow,
    server: ObjectStore,
    users: dict[str, Keys],
    tmp_path: Path,
    user: str,
    words: str,
    more: str,
) -> None:
    catalog, allowed = catalog_of(server), users["pgsub"]
    keys = users.get(user, allowed)
    if user == "unknown":
        keys = Keys("planted3key", "planted3secret")
    elif user == "wrong secret":
        keys = Keys(allowed.key, "planted3secret")
    elif user == "no bucket":
        catalog["warehouse"] = "s3://nobodys/warehouse"
    elif user == "nobody listens":
        catalog["glue.endpoint"] = f"http://127.0.0.1:{free_port()}"
    pgsub = LakePgsub(tmp_path / "data", environment(keys))
    entry = {
        "connection": flow.pub.dsn,
        "publication": ["pub_on_glue"],
        "tables": {f"on_glue.{name}": {"to": f"other.{name}"} for name in TABLES},
    }
    content = {
        "subscriptions": {"checked": entry},
        "lake": {"catalog": catalog},
        "settings": SETTINGS,
    }
    done = pgsub.command("check", str(pgsub.file(content)), status=None, timeout=600)
    said = done.stdout + done.stderr
    assert words in said
    assert more in said
    assert done.returncode == (0 if user == "pgsub" else 1)
    for secret in keys:
        assert secret not in said
