"""The pages of ``docs/`` and what is found in them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def text(name: str) -> str:
    """A page."""
    return (DOCS / name).read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of one language."""
    fence = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return fence.findall(page.read_text(encoding="utf-8"))


def rows(section: str) -> list[list[str]]:
    """The cells of every table row of some Markdown text, heads and rules left out."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = [n for n, row in enumerate(cells) if all(re.fullmatch("-+", c) for c in row)]
    left_out = {*rules, *(n - 1 for n in rules)}
    return [row for n, row in enumerate(cells) if n not in left_out]


def section(page: str, heading: str) -> str:
    """What stands under a heading, up to the next one of its level or above."""
    level = heading.split(" ")[0]
    after = page.split(f"\n{heading}\n", 1)[1]
    return re.split(rf"^#{{1,{len(level)}}} ", after, maxsplit=1, flags=re.MULTILINE)[0]


def script(name: str) -> ModuleType:
    """A generator of ``docs/`` as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
