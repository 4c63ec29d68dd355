"""The monitoring page, the alert rules and the dashboard name metrics that exist."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from catalog.store_sqlite import CatalogStore
from config.load import parse
from tests.docs.pages import DOCS, blocks, rows, section
from tests.prometheus import promtool
from tests.subscriber.status.scraped import busy, exposition, snapshot

FOLDER = DOCS / "monitoring"
PAGE = FOLDER / "README.md"
RULES = FOLDER / "pgsub.rules.yml"
DASHBOARD = json.loads((FOLDER / "pgsub.dashboard.json").read_text())
NAME = re.compile(r"pgsub_[a-z_]+")


@pytest.fixture
def metrics() -> set[str]:
    """Every name of a metric, and of a histogram's series."""
    store = CatalogStore.open(":memory:")
    text = exposition(snapshot(store, busy(store), per_table=True)).decode()
    store.close()
    families = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    return families | {
        line.split("{")[0].split(" ")[0] for line in text.splitlines() if line[0] != "#"
    }


def test_the_table_names_every_metric(metrics: set[str]) -> None:
    families = {re.sub("_(bucket|count|sum)$", "", name) for name in metrics}
    cells = [row[0] for row in rows(section(PAGE.read_text(), "## Metrics"))]
    text = " ".join(cells).replace("`…_", "`pgsub_subscription_")
    assert set(NAME.findall(text)) == families


def test_rules_and_dashboard_ask_for_metrics_that_exist(metrics: set[str]) -> None:
    asked = [rule["expr"] for group in _rules() for rule in group["rules"]]
    asked += [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    names = {name for text in asked for name in NAME.findall(text)}
    assert len(names) > 20
    assert names <= metrics


def _rules() -> list[dict[str, Any]]:
    return list(yaml.safe_load(RULES.read_text())["groups"])


def test_every_alert_is_explained_and_tried() -> None:
    alerts = [rule["alert"] for group in _rules() for rule in group["rules"]]
    explained = [row[0].strip("`") for row in rows(section(PAGE.read_text(), "## Alerts"))]
    assert explained == alerts
    tried = yaml.safe_load((FOLDER / "pgsub.rules.test.yml").read_text())["tests"]
    fired = {
        case["alertname"]
        for test in tried
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert fired == set(alerts)


def test_promtool_checks_and_runs_the_rules() -> None:
    assert "11 rules found" in promtool("check", "rules", RULES)
    assert "SUCCESS" in promtool("test", "rules", FOLDER / "pgsub.rules.test.yml")


def test_the_dashboard_can_be_imported() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids)) >= 12
    assert {each["name"] for each in DASHBOARD["templating"]["list"]} == {
        "datasource",
        "instance",
        "subname",
    }
    for panel in DASHBOARD["panels"]:
        assert panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert {target["refId"] for target in panel["targets"]} <= set("ABC")


def test_the_example_begins_the_page_and_is_read() -> None:
    example, scrape = blocks(PAGE, "yaml")
    assert PAGE.read_text().index("## A working example") < PAGE.read_text().index(
        "## The listener"
    )
    assert parse(example, "example.yaml").settings.metrics_listen == "127.0.0.1:9187"
    config = yaml.safe_load(scrape)
    assert config["scrape_configs"][0]["job_name"] == "pgsub"
    assert (FOLDER / config["rule_files"][0]).exists()
