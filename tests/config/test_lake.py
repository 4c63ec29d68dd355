"""Warehouses: places, which must be absolute, and names, which a catalog knows."""

from __future__ import annotations

import pytest

from catalog.errcodes import ReplicationError
from config.lake import stored_lake


@pytest.mark.parametrize(
    "catalog",
    [
        {"type": "jdbc", "warehouse": "/srv/lake", "uri": "jdbc:sqlite:/srv/lake/catalog.db"},
        {"type": "jdbc", "warehouse": "s3://bucket/prefix", "uri": "jdbc:postgresql://db/lake"},
        {"type": "jdbc", "warehouse": "file:///srv/lake", "uri": "jdbc:sqlite:file:/srv/c.db"},
        {"type": "rest", "warehouse": "my_wh", "uri": "https://catalog.example"},
        {"type": "glue", "warehouse": "s3://bucket/prefix"},
        {},
    ],
    ids=lambda catalog: " ".join(catalog.values()) or "default",
)
def test_places_and_names_are_taken(catalog: dict[str, str]) -> None:
    assert stored_lake({"lake": {"catalog": catalog}}).catalog == catalog


@pytest.mark.parametrize(
    "catalog",
    [
        {"type": "jdbc", "warehouse": "warehouse"},
        {"type": "hadoop", "warehouse": "./warehouse"},
        {"type": "jdbc", "warehouse": "/srv/lake", "uri": "jdbc:sqlite:cat.db"},
        {"type": "jdbc", "warehouse": "/srv/lake", "uri": "jdbc:sqlite:file:cat.db"},
    ],
    ids=lambda catalog: " ".join(catalog.values()),
)
def test_a_relative_path_of_a_stored_configuration_is_refused(catalog: dict[str, str]) -> None:
    with pytest.raises(ReplicationError) as caught:
        stored_lake({"lake": {"catalog": catalog}})
    assert caught.value.code == "22023"
    assert caught.value.hint
