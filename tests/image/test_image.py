"""The image as docs/install/image.md builds and runs it, beside a PostgreSQL of this machine."""

from __future__ import annotations

import json
import re
import time
import tomllib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.docs.pages import ROOT
from tests.image.engine import docker, inspect
from tests.image.page import HOST, IMAGE, PASSWORD, PATIENCE, example, run
from tests.waiting import wait_until

pytestmark = [pytest.mark.image, pytest.mark.postgres, pytest.mark.timeout(2400)]

MOST_BYTES: Final = 900_000_000
"""Two fifths of them are Spark's jars and LLVM; a growth is looked at before it lands."""
MISSED: Final = "NoClassDefFoundError|ClassNotFoundException|UnsatisfiedLinkError|ImportError"
"""What Java and Python say where something was left out too much."""
FUNCTIONS: Final = """
SELECT 'a' COLLATE UNICODE_CI = 'A' AS collated, initcap('ab') AS words, upper('\u00e4') AS upper,
    date_format(TIMESTAMP '2026-01-02 03:04:05', 'EEEE MMMM') AS day,
    to_timestamp('2026-01-02 03:04 +01:00', 'yyyy-MM-dd HH:mm XXX') AS moment,
    from_json('{"a": 1}', 'a int').a AS json, from_csv('1,2', 'a int, b int').b AS csv,
    variant_get(parse_json('{"a": 7}'), '$.a', 'int') AS variant,
    hll_sketch_estimate(hll_sketch_agg(id)) AS sketch, approx_percentile(id, 0.5) AS percentile,
    corr(id, id) AS corr, aes_encrypt('x', '0000111122223333') IS NOT NULL AS aes,
    xxhash64(name) IS NOT NULL AS hash, regexp_extract(name, '([a-z]+)', 1) AS word
FROM (SELECT id, name FROM lake.public.items WHERE id = 1) GROUP BY name
"""


@dataclass
class Container:
    """A container of the image with a volume of its own, and the publisher it replicates from.

    ``seconds`` is the time from its start to its first row, ``copied`` the rows that were there.
    """

    name: str
    publisher: EmbeddedPublisher
    table: str = "items"
    seconds: float = 0.0
    copied: int = 0

    def pgsub(self, *words: str, status: int | None = 0) -> str:
        return docker("exec", self.name, "pgsub", *words, status=status)

    def ready(self) -> None:
        wait_until(
            lambda: "readyz check passed" in self.pgsub("health", status=None),
            PATIENCE,
            lambda: docker("logs", self.name)[-3000:],
            pause=0.5,
        )

    def insert(self, first: int, last: int) -> None:
        insert = "INSERT INTO items SELECT g, 'later' FROM generate_series(%s, %s) g"
        self.publisher.execute(insert, (first, last))

    def seen(self) -> list[tuple[int, str]]:
        """The rows that a reader of the lake has."""
        query = f"SELECT id, name FROM lake.public.{self.table} ORDER BY id"
        return [(row["id"], row["name"]) for row in self.sql(query)]

    def sql(self, query: str) -> list[dict[str, Any]]:
        return list(json.loads(self.pgsub("sql", query, "--format", "json")))

    def equal(self) -> bool:
        """Are the lake's rows the publisher's, after everything has arrived?"""
        self.pgsub("wait", "sales", "--timeout", str(int(PATIENCE)))
        query = f"SELECT id, name FROM {self.table} ORDER BY id"
        return self.seen() == self.publisher.execute(query)


@pytest.fixture(scope="module")
def publisher() -> Iterator[EmbeddedPublisher]:
    with EmbeddedPublisher(18, password=PASSWORD) as made:
        made.execute(
            "CREATE TABLE items (id int PRIMARY KEY, name text);"
            "INSERT INTO items SELECT g, 'item ' || g FROM generate_series(1, 2000) g;"
            "CREATE PUBLICATION p FOR TABLE items"
        )
        yield made


@pytest.fixture(scope="module")
def container(
    image: str, publisher: EmbeddedPublisher, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Container]:
    """What the page's example leaves, with its names replaced by names of the test's own."""
    name = f"{image}-{uuid.uuid4().hex[:8]}"
    folder = tmp_path_factory.mktemp("image")
    made = Container(name, publisher)
    write_file(folder, publisher)
    _, started = example()
    started = re.sub(r"(--name |exec |--volume )pgsub\b", rf"\1{name}", started)
    try:
        began = time.monotonic()
        run(started.replace("docker run", "docker run --network host"), folder)
        made.seconds = time.monotonic() - began
        made.copied = len(made.seen())
        yield made
    finally:
        docker("rm", "--force", name, status=None)
        docker("volume", "rm", "--force", name, status=None)


def write_file(
    folder: Path, publisher: EmbeddedPublisher, publication: str = "p", **more: Any
) -> Path:
    """The file of the page's subscription; its slot has the publication's name."""
    place = f"host=127.0.0.1 port={publisher.port} user=postgres dbname=postgres"
    sales: dict[str, Any] = {"connection": place, "password_env": "SALES_PASSWORD"}
    sales |= {"publication": publication, "with": {"slot_name": publication}}
    file = folder / "subscription.yaml"
    file.write_text(yaml.safe_dump({"subscriptions": {"sales": sales}, **more}))
    file.chmod(0o644)
    folder.chmod(0o755)
    return file


def test_the_page_s_example_replicates_to_equality(
    container: Container, capsys: pytest.CaptureFixture[str]
) -> None:
    assert container.copied == 2000
    container.publisher.execute(
        "UPDATE items SET name = upper(name) WHERE id % 3 = 0; DELETE FROM items WHERE id % 7 = 0"
    )
    assert container.equal()
    size = int(inspect(IMAGE)["Size"])
    with capsys.disabled():
        print(f"\nimage: {size / 1e6:.0f} MB; first row after {container.seconds:.1f} s")
    assert size <= MOST_BYTES


def test_every_row_can_go_through_spark(
    image: str, publisher: EmbeddedPublisher, tmp_path: Path
) -> None:
    """Spark reads the staged rows of a copy and of a MERGE, which needs more of the jars than a
    commit of files does."""
    publisher.execute(
        "CREATE TABLE staged (id int PRIMARY KEY, name text);"
        "INSERT INTO staged SELECT g, 'item ' || g FROM generate_series(1, 2000) g;"
        "CREATE PUBLICATION staged FOR TABLE staged"
    )
    spark = {"lake": {"writer": "spark"}, "settings": {"local_relation_rows": 100}}
    file = write_file(tmp_path, publisher, "staged", **spark)
    made = Container(f"{image}-spark-{uuid.uuid4().hex[:8]}", publisher, "staged")
    mount = f"{file}:/etc/pgsub/subscription.yaml:ro"
    words = ("--network", "host", "--read-only", "--tmpfs", "/tmp", "--env", "SALES_PASSWORD")
    try:
        docker("run", "--detach", "--name", made.name, *words, "--volume", mount, image,
               SALES_PASSWORD=PASSWORD)  # fmt: skip
        made.ready()
        assert made.equal()
        publisher.execute(
            "UPDATE staged SET name = upper(name) WHERE id % 3 = 0;"
            "DELETE FROM staged WHERE id % 7 = 0;"
            "INSERT INTO staged SELECT g, 'new' FROM generate_series(3001, 3500) g"
        )
        assert made.equal()
        files = made.sql("SELECT file_path FROM lake.public.staged.all_data_files")
        assert files
        assert not [each for each in files if "/data/pgsub-" in each["file_path"]]
        assert not re.search(MISSED, docker("logs", made.name))
    finally:
        docker("rm", "--force", "--volumes", made.name, status=None)


def test_no_start_compiles_or_fetches(container: Container) -> None:
    """The kernels of the user's cache are those of the image, to the file."""
    kernels = "find {} -name '*.nb?' -printf '%f\\n' | sort"
    places = ("/opt/pgsub/lib", "/var/lib/pgsub/cache")
    words = [("exec", container.name, "sh", "-c", kernels.format(each)) for each in places]
    inside, used = (docker(*each).split() for each in words)
    assert len(inside) > 20
    assert used == inside
    assert "resolving" not in docker("logs", container.name)
    maps = docker("exec", container.name, "sh", "-c", "cat /proc/[0-9]*/maps | grep -c [.]jsa")
    assert int(maps) > 0, "no lake server maps the class archive"


def test_sql_has_its_functions(container: Container) -> None:
    [row] = container.sql(FUNCTIONS)
    assert (row["collated"], row["words"], row["upper"]) == (True, "Ab", "\u00c4")
    assert (row["day"], row["json"], row["csv"], row["variant"]) == ("Friday January", 1, 2, 7)
    assert (row["sketch"], row["percentile"]) == (1, 1)


def test_nothing_that_was_left_out_is_missed(container: Container) -> None:
    look = f"cat /var/lib/pgsub/data/log/* | grep -E '{MISSED}' | sort | uniq -c || true"
    assert docker("exec", container.name, "sh", "-c", look) == ""


def test_no_program_misses_a_library(container: Container) -> None:
    """Of Debian's programs and libraries, of which the build takes packages away."""
    look = (
        "find /bin/ /sbin/ /usr /lib/ -xdev -type f | while read -r file; do"
        " case $(head -c 4 $file | tail -c 3) in ELF) ldd $file 2>&1 | sed s,^,$file:,;; esac; done"
    )
    linked = docker("exec", container.name, "sh", "-c", look).splitlines()
    assert len(linked) > 500
    assert [line for line in linked if "not found" in line] == []


def test_the_class_archive_lies_unpacked_on_the_volume(container: Container) -> None:
    look = "ls /var/lib/pgsub/cache/pgsub/ivy/unpacked"
    listed = docker("exec", container.name, "sh", "-c", look).split()
    assert len(listed) == 2, "the archive, and that of Java's own classes"
    assert all(name.endswith(".jsa") for name in listed)


def test_an_image_for_a_store_has_the_store_s_client(build: list[str], tmp_path: Path) -> None:
    file = tmp_path / "lake.yaml"
    lake = {"catalog": {"type": "rest", "uri": "http://localhost", "warehouse": "s3://lake"}}
    file.write_text(yaml.safe_dump({"subscriptions": {}, "lake": lake}))
    file.chmod(0o644)
    with_client = f"{IMAGE}-s3"
    docker("build", *build, "--build-arg", "WAREHOUSE=s3://", "--tag", with_client, ROOT)
    words = ("run", "--rm", "--network", "none", "--volume", f"{file}:/lake.yaml:ro")
    assert "jars: 4 files" in docker(*words, with_client, "fetch", "/lake.yaml")
    assert "could not resolve" in docker(*words, IMAGE, "fetch", "/lake.yaml", status=1)


def test_a_launcher_starts_without_a_network(container: Container, tmp_path: Path) -> None:
    file = tmp_path / "subscription.yaml"
    file.write_text("subscriptions: {}\n")
    file.chmod(0o644)
    alone = Container(f"{container.name}-alone", container.publisher)
    mount = f"{file}:/etc/pgsub/subscription.yaml:ro"
    try:
        docker("run", "--detach", "--name", alone.name, "--network", "none", "--read-only",
               "--tmpfs", "/tmp", "--volume", mount, IMAGE)  # fmt: skip
        alone.ready()
        assert alone.sql("SELECT 1 AS n") == [{"n": 1}]
    finally:
        docker("rm", "--force", "--volumes", alone.name, status=None)


def test_the_container_is_healthy_without_root_and_without_a_writable_root(
    container: Container,
) -> None:
    wait_until(
        lambda: inspect(container.name)["State"]["Health"]["Status"] == "healthy",
        PATIENCE,
        lambda: inspect(container.name)["State"],
        pause=1.0,
    )
    assert docker("exec", container.name, "id", "-u").strip() == "10001"
    refused = docker("exec", container.name, "touch", "/opt/pgsub/x", status=None)
    assert "Read-only file system" in refused
    assert "tini" in docker("exec", container.name, "cat", "/proc/1/comm")


def test_a_killed_container_goes_on_where_it_was(container: Container) -> None:
    container.publisher.execute(
        "INSERT INTO items SELECT g, 'k' FROM generate_series(5001, 5500) g"
    )
    docker("kill", container.name)
    container.publisher.execute("DELETE FROM items WHERE id BETWEEN 5001 AND 5100")
    docker("start", container.name)
    container.ready()
    assert container.equal()


def test_a_stopped_container_ends_by_itself_in_its_grace_period(container: Container) -> None:
    """Under load, and with exit status 0: an engine that lost patience would leave 137."""
    container.publisher.execute(
        "INSERT INTO items SELECT g, 's' FROM generate_series(6001, 9000) g"
    )
    grace = int(inspect(container.name)["Config"]["StopTimeout"])
    began = time.monotonic()
    docker("stop", container.name)
    assert time.monotonic() - began < grace
    assert inspect(container.name)["State"]["ExitCode"] == 0
    docker("start", container.name)
    container.ready()
    assert container.equal()


def test_labels_user_and_ports_of_the_image(image: str) -> None:
    config: dict[str, Any] = inspect(image)["Config"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert config["Labels"]["org.opencontainers.image.version"] == project["version"]
    assert config["User"] == "10001:10001"
    assert list(config["Volumes"]) == ["/var/lib/pgsub"]
    assert list(config["ExposedPorts"]) == ["9187/tcp"]


def test_no_layer_and_no_log_has_a_secret(container: Container) -> None:
    """The host is one of the build's arguments; the password is in the container's environment."""
    said = docker("history", "--no-trunc", IMAGE) + json.dumps(inspect(IMAGE))
    assert HOST not in said
    look = f"grep -rslE '{HOST}|{PASSWORD}' /opt /etc /usr /var/lib/pgsub || true"
    assert docker("exec", "--user", "0", container.name, "sh", "-c", look).strip() == ""
    assert PASSWORD not in docker("logs", container.name)
