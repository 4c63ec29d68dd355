"""Make manual pages from ``docs/commands``: ``python -P docs/make_man.py FOLDER``, or in a wheel.

``docs/commands/pgsub-up.md`` becomes ``pgsub-up.1``. markdown-it reads the page, and each block
becomes the macro of ``man(7)`` for it::

    # pgsub wait          .TH "PGSUB WAIT" 1, and the first paragraph is the line under NAME
    ## Synopsis           .SH SYNOPSIS
    **`--lsn LSN`** text  .TP, the bold words hang
    | a | b |             .TP for each row
    [text](page)          text

The wheel has the pages below ``share/man``: ``man pgsub`` finds them beside the command.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

COMMANDS: Final = Path(__file__).resolve().parent / "commands"


class ManPages(BuildHookInterface[Any]):
    """Puts the pages into the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before a wheel is built; a development install has no pages."""
        if version != "standard":
            return
        folder = Path(tempfile.mkdtemp(prefix="pgsub-man-"))
        for page in write_pages(folder):
            build_data["shared_data"][str(page)] = f"share/man/man1/{page.name}"


def write_pages(folder: Path) -> list[Path]:
    """Write every page to a folder; the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for source in sorted(COMMANDS.glob("*.md")):
        target = folder / f"{source.stem}.1"
        target.write_text(page(source.stem, source.read_text(encoding="utf-8")), encoding="utf-8")
        written.append(target)
    return written


def page(name: str, text: str) -> str:
    """The manual page of a Markdown page."""
    blocks = SyntaxTreeNode(MarkdownIt().enable("table").parse(text)).children
    title, purpose, *rest = blocks
    lines = [
        f'.TH "{_inline(title.children[0]).upper()}" 1 "" "pgsub" "pgsub"',
        ".SH NAME",
        rf"{name} \- {_inline(purpose.children[0])}",
    ]
    for block in rest:
        lines += _block(block)
    return "\n".join(lines) + "\n"


def _block(node: SyntaxTreeNode) -> Iterator[str]:
    match node.type:
        case "heading":
            words = _inline(node.children[0])
            yield f".SH {words.upper()}" if node.tag == "h2" else f".SS {words}"
        case "paragraph":
            yield from _paragraph(node.children[0])
        case "fence" | "code_block":
            yield from (".PP", ".RS 4", ".nf", _text(node.content.rstrip("\n")), ".fi", ".RE")
        case "bullet_list" | "ordered_list":
            for number, item in enumerate(node.children, 1):
                yield r".IP \(bu 2" if node.type == "bullet_list" else f".IP {number}. 4"
                for inner in item.children:
                    yield from _item(inner)
        case "table":
            yield from _table(node)
        case _:
            raise ValueError(f"a manual page has no {node.type}")


def _item(node: SyntaxTreeNode) -> Iterator[str]:
    """A block in a list: a paragraph goes on behind the bullet."""
    if node.type == "paragraph":
        yield _inline(node.children[0])
    else:
        yield from (".RS 2", *_block(node), ".RE")


def _paragraph(inline: SyntaxTreeNode) -> Iterator[str]:
    """A paragraph that begins with bold words describes a parameter."""
    first, *rest = inline.children
    if first.type == "text" and not first.content and rest:
        first, *rest = rest
    if first.type == "strong" and rest:
        yield from (".TP", _words(first), "".join(map(_words, rest)).strip())
    else:
        yield from (".PP", _inline(inline))


def _table(node: SyntaxTreeNode) -> Iterator[str]:
    """Each row hangs under the first cell; the names of the other columns come once, before."""
    rows = [row.children for part in node.children for row in part.children]
    head, *body = [[_inline(cell.children[0]) if cell.children else "" for cell in r] for r in rows]
    if any(head):
        yield from (".TP", " / ".join(rf"\fI{cell}\fR" for cell in head if cell), r"\&")
    for first, *others in body:
        yield from (".TP", first or r"\&", "; ".join(cell for cell in others if cell) or r"\&")


def _inline(node: SyntaxTreeNode) -> str:
    return "".join(map(_words, node.children)).strip()


def _words(node: SyntaxTreeNode) -> str:
    match node.type:
        case "text":
            return _text(node.content)
        case "softbreak" | "hardbreak":
            return "\n"
        case "code_inline":
            return rf"\fB{_text(node.content)}\fR"
        case "strong":
            return r"\fB" + re.sub(r"\\f[BR]", "", _inline(node)) + r"\fR"
        case "em":
            return rf"\fI{_inline(node)}\fR"
        case "link":
            return _inline(node)
        case _:
            raise ValueError(f"a manual page has no {node.type}")


def _text(text: str) -> str:
    """Text as it is: neither a macro nor an escape of roff's."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.MULTILINE)


if __name__ == "__main__":
    for each in write_pages(Path(sys.argv[1])):
        print(each)
