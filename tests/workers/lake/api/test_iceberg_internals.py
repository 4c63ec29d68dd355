"""What Iceberg does not offer to others: the names must be right for the jar that is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workers.lake.api.gateway import Gateway
from workers.lake.api.iceberg_internals import private_value, snapshot_method
from workers.lake.api.java_api import JavaApi
from workers.lake.table import LakeIdent

BRANCH = "pgsub_1_1_0"


def manifests(table: Any) -> set[str]:
    folder = Path(str(table.location()).removeprefix("file:")) / "metadata"
    return {path.name for path in folder.glob("*.avro")}


def written(api: JavaApi, table: Any, known: Any) -> tuple[Any, Any]:
    """An empty append, applied on the state ``known``: Iceberg's update and the snapshot."""
    update = table.newAppend().scanManifestsWith(api.in_this_thread)
    with api.on_known_state(update, known):
        return update, update.apply()


def test_a_snapshot_is_written_on_the_known_state(
    dest: Any, lake_ident: LakeIdent, lake_gateway: Gateway
) -> None:
    with lake_gateway.api("testing") as api:
        table = api.load(lake_ident)
        dest.create_branch(lake_ident, BRANCH)
        update, made = written(api, table, known=table)
        assert table.operations().current().ref(BRANCH) is None, "nothing was read"
        assert made.parentId() == table.currentSnapshot().snapshotId()
        again = update.apply()
        assert table.operations().current().ref(BRANCH) is not None, "only within the block"
        assert again.snapshotId() == made.snapshotId(), "every attempt gives the same id"
        assert again.manifestListLocation() != made.manifestListLocation()


def test_without_a_known_state_the_table_is_read(
    dest: Any, lake_ident: LakeIdent, lake_gateway: Gateway
) -> None:
    with lake_gateway.api("testing") as api:
        table = api.load(lake_ident)
        dest.create_branch(lake_ident, BRANCH)
        written(api, table, known=None)
        assert table.operations().current().ref(BRANCH) is not None


def test_what_was_written_on_the_known_state_is_committed(
    dest: Any, lake_ident: LakeIdent, lake_gateway: Gateway
) -> None:
    with lake_gateway.api("testing") as api:
        table = api.load(lake_ident)
        before = manifests(table)
        _, made = written(api, table, known=table)
        operations = table.operations()
        base = operations.current()
        assert base.snapshot(made.snapshotId()) is None
        operations.commit(base, api.with_snapshot(base, made, "main"))
        assert dest.table(lake_ident).snapshot_id == made.snapshotId()
        assert len(manifests(table) - before) == 1


def test_all_manifests_of_a_commit_may_be_removed(
    dest: Any, lake_ident: LakeIdent, lake_gateway: Gateway
) -> None:
    assert dest.table(lake_ident) is not None
    with lake_gateway.api("testing") as api:
        table = api.load(lake_ident)
        before = manifests(table)
        update, _ = written(api, table, known=table)
        assert manifests(table) > before
        connections = lake_gateway.connections
        remove = snapshot_method(connections, "cleanAll")
        remove.invoke(update, connections.new_array(connections.jvm.java.lang.Object, 0))
        assert manifests(table) == before


def test_a_private_field_is_read(dest: Any, lake_ident: LakeIdent, lake_gateway: Gateway) -> None:
    assert dest.table(lake_ident) is not None
    with lake_gateway.api("testing") as api:
        table = api.load(lake_ident)
        assert private_value(table, "name") == table.name()
