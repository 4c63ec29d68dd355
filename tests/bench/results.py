"""The files of results: the targets, what was measured last of each case, and on what."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
TARGETS: Final = HERE / "targets.toml"

_INNERMOST: Final = re.compile(r"\[[^\[\]{}]*\]")

Content = dict[str, list[dict[str, Any]]]
"""``environments``, and ``results`` of which each names one by its number."""


def targets() -> list[dict[str, Any]]:
    """What is aimed at, in the order of the page."""
    found: list[dict[str, Any]] = tomllib.loads(TARGETS.read_text())["target"]
    return found


def merged(
    before: Content, entry: dict[str, Any], environment: dict[str, Any], order: Sequence[str]
) -> Content:
    """With a case's entry in the place of its last one, in the order of the cases.

    Entries of other cases keep the environment they were measured in; those of cases that there
    are no more go.
    """
    environments = before.get("environments", [])
    pairs = {
        old["case"]: (old, environments[old["environment"]] if "environment" in old else None)
        for old in before.get("results", [])
    }
    pairs[entry["case"]] = (entry, environment)
    used: list[dict[str, Any]] = []
    results = []
    for case in filter(pairs.__contains__, order):
        kept, where = pairs[case]
        kept = {key: value for key, value in kept.items() if key != "environment"}
        if where is not None:
            used += [where] if where not in used else []
            kept["environment"] = used.index(where)
        results.append(kept)
    return {"environments": used, "results": results}


def as_text(content: Content) -> str:
    """The file: JSON, a list of numbers on one line."""
    text = json.dumps(content, indent=1)
    return _INNERMOST.sub(lambda found: re.sub(r"\s+", " ", found[0]), text) + "\n"


class Kept:
    """A file of results that is renewed case by case: what took an hour is not lost by the next."""

    def __init__(self, path: Path, environment: dict[str, Any], order: Sequence[str]) -> None:
        self._path = path
        self._environment = environment
        self._order = order

    def keep(self, entry: dict[str, Any]) -> None:
        """One case's new result."""
        before = json.loads(self._path.read_text()) if self._path.exists() else {}
        self._path.write_text(as_text(merged(before, entry, self._environment, self._order)))
