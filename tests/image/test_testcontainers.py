"""pgsub and its publisher, each in a container of one network; testcontainers starts both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
import yaml
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from tests.image.engine import docker
from tests.image.page import PATIENCE
from tests.waiting import wait_until

pytestmark = [pytest.mark.image, pytest.mark.timeout(2400)]

POSTGRES: Final = "pgsub-test-postgres:15"
DOCKERFILE: Final = """
ARG BASE
FROM ${BASE}
RUN apt-get update && apt-get install --yes --no-install-recommends postgresql-15
USER postgres
ENV PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=/var/lib/postgresql/data
RUN initdb && echo host all all all trust >> $PGDATA/pg_hba.conf
CMD ["postgres", "-c", "wal_level=logical", "-c", "listen_addresses=*"]
"""


@pytest.fixture(scope="module")
def server_image(build: list[str]) -> str:
    """PostgreSQL's; testcontainers' own image for cleaning up is in no reach."""
    testcontainers_config.ryuk_disabled = True
    docker("build", *build[:3], "--tag", POSTGRES, "-", stdin=DOCKERFILE)
    return POSTGRES


def sql(container: DockerContainer, statement: str) -> str:
    """Run a statement in the publisher's container."""
    words = ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", statement]
    done = container.exec(words)
    return str(done.output.decode()) if done.exit_code == 0 else ""


def test_two_containers_in_a_network_of_their_own(
    image: str, server_image: str, tmp_path: Path
) -> None:
    file = tmp_path / "subscription.yaml"
    place = "host=publisher user=postgres dbname=postgres"
    sales = {"connection": place, "publication": "p"}
    file.write_text(yaml.safe_dump({"subscriptions": {"sales": sales}}))
    file.chmod(0o644)
    with Network() as network:
        publisher = DockerContainer(server_image).with_network(network)
        with publisher.with_network_aliases("publisher") as server:
            wait_until(lambda: sql(server, "SELECT 1"), what="PostgreSQL answers")
            sql(server, "CREATE TABLE items (id int PRIMARY KEY, name text)")
            sql(server, "INSERT INTO items SELECT g, 'n' || g FROM generate_series(1, 500) g")
            sql(server, "CREATE PUBLICATION p FOR TABLE items")
            subscriber = (
                DockerContainer(image)
                .with_network(network)
                .with_volume_mapping(str(file), "/etc/pgsub/subscription.yaml", "ro")
            )
            with subscriber as pgsub:
                wait_until(
                    lambda: pgsub.exec(["pgsub", "health"]).exit_code == 0,
                    PATIENCE,
                    lambda: pgsub.get_logs(),
                    pause=0.5,
                )
                sql(server, "UPDATE items SET name = 'changed' WHERE id <= 100")
                assert pgsub.exec(["pgsub", "wait", "sales"]).exit_code == 0
                query = "SELECT id, name FROM lake.public.items ORDER BY id"
                seen = pgsub.exec(["pgsub", "sql", query, "--format", "json"]).output
                rows = sql(server, "SELECT id, name FROM items ORDER BY id").splitlines()
                assert len(rows) == 500
                assert [f"{row['id']}|{row['name']}" for row in json.loads(seen)] == rows
