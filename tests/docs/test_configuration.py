from __future__ import annotations

from pathlib import Path

import pytest

from config.guc import Settings, setting_docs
from config.load import load, parse
from config.subscription import WithOptions
from tests.docs.pages import PAGES, ROOT, blocks, rows, script, section, text

PAGE = "configuration.md"
SAMPLES = sorted((ROOT / "config" / "samples").glob("*.yaml"))
WRITTEN = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in [*PAGES, ROOT / "README.md"]
    for number, block in enumerate(blocks(page, "yaml"))
    if "subscriptions:" in block
]


def test_generated_parts_are_up_to_date() -> None:
    """If not: ``python -P docs/make_configuration.py``."""
    assert script("make_configuration").updated(text(PAGE)) == text(PAGE)


def test_every_setting_has_a_unit_or_is_a_number() -> None:
    table = rows(section(text(PAGE), "## `settings`"))
    shown = {row[0].strip("`"): row for row in table}
    assert set(shown) == set(Settings.model_fields)
    for doc in setting_docs():
        assert shown[doc.name][1:3] == [
            doc.default,
            shown[doc.name][2] if doc.kind in ("time", "size") else "",
        ]
        assert bool(shown[doc.name][2]) is (doc.kind in ("time", "size"))


def test_every_option_is_shown() -> None:
    table = rows(section(text(PAGE), "### `with`"))
    assert {row[0].strip("`") for row in table} == set(WithOptions.model_fields)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_samples_load(path: Path) -> None:
    assert load(path).subscriptions


def test_there_are_samples_and_examples() -> None:
    assert {path.name for path in SAMPLES} == {"complete.yaml", "subscription.yaml"}
    assert len(WRITTEN) >= 3


@pytest.mark.parametrize("block", WRITTEN)
def test_examples_on_the_pages_are_read(block: str) -> None:
    parse(block, "example.yaml")
