"""docs/install/systemd.md, tried from the text under a systemd that runs as a container's PID 1.

The machine of the page is a container with systemd. The program at /opt/pgsub is that of the image.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest
import yaml

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.docs.pages import DOCS, ROOT, blocks
from tests.image.engine import docker
from tests.image.page import IMAGE, PASSWORD, PATIENCE
from tests.waiting import wait_until

pytestmark = [pytest.mark.image, pytest.mark.postgres, pytest.mark.timeout(2400)]

PAGE: Final = DOCS / "install" / "systemd.md"
INSTALL, COMMAND, CONNECTING = blocks(PAGE, "text")
MACHINE: Final = "pgsub-test-systemd"
PRIVILEGES: Final = (
    *("--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE"),
    *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"),
    *("--cgroupns", "host", "--volume", "/sys/fs/cgroup:/sys/fs/cgroup"),
    *("--tmpfs", "/run", "--tmpfs", "/tmp"),
)
"""What systemd needs as the first process of a container; an engine in a container has no more."""
DOCKERFILE: Final = f"""
ARG BASE
FROM {IMAGE} AS program
FROM ${{BASE}}
RUN apt-get update && apt-get install --yes --no-install-recommends dbus python3 sudo systemd
COPY --from=program /opt/pgsub /opt/pgsub
ENV container=docker
RUN ln -s /opt/pgsub/java/bin/java /usr/local/bin/ && mkdir /etc/pgsub
RUN mkdir /etc/systemd/system/pgsub.service.d \
 && printf '[Service]\\nEnvironment=NUMBA_CPU_NAME=generic\\n' \
    > /etc/systemd/system/pgsub.service.d/kernels.conf
STOPSIGNAL SIGRTMIN+3
CMD ["/usr/lib/systemd/systemd"]
"""
"""The program's kernels are compiled for every processor; the file beside the unit says so."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A container with systemd, and the publisher that its pgsub replicates from."""

    name: str
    publisher: EmbeddedPublisher

    def run(self, script: str, status: int | None = 0) -> str:
        return docker("exec", "--workdir", "/srv", self.name, "bash", "-euo", "pipefail", "-c",
                      script, status=status)  # fmt: skip

    def shown(self, name: str) -> str:
        """A property of the unit."""
        return self.run(f"systemctl show pgsub --property={name} --value").strip()

    def log(self) -> str:
        return self.run("journalctl --unit pgsub --no-pager | tail -n 50", status=None)


@pytest.fixture(scope="module")
def publisher() -> Iterator[EmbeddedPublisher]:
    with EmbeddedPublisher(18, password=PASSWORD) as made:
        made.execute(
            "CREATE TABLE items (id int PRIMARY KEY, name text);"
            "INSERT INTO items SELECT g, 'item ' || g FROM generate_series(1, 100) g;"
            "CREATE PUBLICATION p FOR TABLE items"
        )
        yield made


@pytest.fixture(scope="module")
def machine(
    build: list[str],
    image: str,
    publisher: EmbeddedPublisher,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Machine]:
    """What the page's commands leave."""
    name = f"{image}-systemd-{uuid.uuid4().hex[:8]}"
    files = tmp_path_factory.mktemp("systemd")
    place = f"host=127.0.0.1 port={publisher.port} user=postgres dbname=postgres"
    sales = {"connection": place, "password_env": "SALES_PASSWORD", "publication": "p"}
    (files / "subscription.yaml").write_text(yaml.safe_dump({"subscriptions": {"sales": sales}}))
    (files / "secrets").write_text(f"SALES_PASSWORD={PASSWORD}\n")
    docker("build", *build[:3], "--tag", MACHINE, "-", stdin=DOCKERFILE)
    made = Machine(name, publisher)
    try:
        docker("run", "--detach", "--name", name, "--network", "host", *PRIVILEGES, MACHINE)
        wait_until(
            lambda: "running" in made.run("systemctl is-system-running", status=None),
            PATIENCE,
            lambda: docker("logs", name)[-3000:] + made.run("systemctl --failed", status=None),
            pause=0.5,
        )
        docker("cp", ROOT / "docs/install/pgsub.service", f"{name}:/srv/pgsub.service")
        for file in ("subscription.yaml", "secrets"):
            docker("cp", files / file, f"{name}:/etc/pgsub/{file}")
        made.run("chmod 600 /etc/pgsub/secrets; chmod 644 /etc/pgsub/subscription.yaml")
        said = made.run(INSTALL, status=None)
        assert made.shown("ActiveState") == "active", said + made.log()
        yield made
    finally:
        docker("rm", "--force", "--volumes", name, status=None)


def test_the_service_starts_as_the_page_says(machine: Machine) -> None:
    """``systemctl enable --now`` returned: so READY=1 has come, and the worker runs."""
    status = machine.run("systemctl status pgsub")
    assert "Active: active (running)" in status
    assert re.search(r'Status: "tables: .*; lag \d', status)
    assert machine.shown("Result") == "success"
    assert "sales" in machine.run(COMMAND)


def test_the_tables_are_replicated(machine: Machine) -> None:
    pgsub = COMMAND.strip().removesuffix(" status")
    machine.publisher.execute("UPDATE items SET name = 'changed' WHERE id <= 10")
    machine.run(CONNECTING)
    query = "SELECT id, name FROM lake.public.items ORDER BY id"
    seen = json.loads(machine.run(f"{pgsub} sql '{query}' --format json"))
    rows = machine.publisher.execute("SELECT id, name FROM items ORDER BY id")
    assert [(each["id"], each["name"]) for each in seen] == rows


def test_reload_reads_the_file(machine: Machine) -> None:
    machine.run("systemctl reload pgsub")
    wait_until(lambda: "action=reload" in machine.log(), PATIENCE, machine.log)
    assert machine.shown("ActiveState") == "active"


def test_a_launcher_that_hangs_is_started_again(machine: Machine) -> None:
    before = machine.shown("MainPID")
    machine.run(f"kill -STOP {before}")
    wait_until(
        lambda: (
            machine.shown("MainPID") not in (before, "0")
            and machine.shown("ActiveState") == "active"
        ),
        PATIENCE,
        machine.log,
        pause=1.0,
    )
    assert "Watchdog timeout" in machine.run("journalctl --unit pgsub --no-pager")
    assert machine.shown("NRestarts") == "1"


def test_a_stop_is_clean_and_the_next_boot_starts_it(machine: Machine) -> None:
    machine.run("systemctl stop pgsub")
    try:
        assert machine.shown("Result") == "success"
        assert machine.shown("ExecMainStatus") == "0"
        assert machine.run("systemctl is-enabled pgsub").strip() == "enabled"
        look = "cat /proc/[0-9]*/cgroup | grep -c pgsub.service || true"
        assert machine.run(look).strip() == "0"
    finally:
        machine.run("systemctl start pgsub")
