"""Removes what the image leaves out: ``leave_out.py LIST FOLDER...``, for the Dockerfile.

The list has the patterns and the reasons. A pattern is looked for in every folder. Entries are
taken out of a jar by writing the jar anew, compressed as far as deflate goes. A jar keeps the
libraries for this system and this processor.
"""

from __future__ import annotations

import fnmatch
import platform
import re
import shutil
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

NATIVE = "native"
LIBRARY = re.compile(r"\.(so|dll|dylib|jnilib|a)$")
HERE = {"x86_64": ("/linux/amd64/", "/linux/x86_64/"), "aarch64": ("/linux/aarch64/",)}


def patterns(text: str) -> list[str]:
    """The patterns of a list, without reasons and empty lines."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def leave_out(pattern: str, folders: Sequence[Path]) -> int:
    """Remove what a pattern matches; the bytes that are gone. ValueError if nothing matches."""
    path, _, entries = pattern.partition("!")
    found = [each for folder in folders for each in folder.glob(path)]
    before = sum(map(size, found))
    for each in found:
        if entries:
            take_out(each, entries)
        elif each.is_dir():
            shutil.rmtree(each)
        else:
            each.unlink(missing_ok=True)
    if not found:
        raise ValueError(f"nothing matches {pattern}")
    return before - sum(map(size, found))


def take_out(jar: Path, entries: str) -> None:
    """Write a jar without some of its entries. ValueError if no entry matches."""
    partial = jar.with_suffix(".part")
    with zipfile.ZipFile(jar) as source:
        kept = [info for info in source.infolist() if not matches(info.filename, entries)]
        if len(kept) == len(source.infolist()):
            raise ValueError(f"nothing in {jar.name} matches {entries}")
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target:
            for info in kept:
                target.writestr(info, source.read(info), info.compress_type, compresslevel=9)
    partial.replace(jar)


def matches(name: str, entries: str) -> bool:
    """Does an entry of a jar go?"""
    if entries != NATIVE:
        return fnmatch.fnmatchcase(name, entries)
    place = f"/{name.lower()}"
    return LIBRARY.search(place) is not None and not any(
        each in place for each in HERE[platform.machine()]
    )


def size(path: Path) -> int:
    """The bytes of a file, or of a folder's files."""
    if path.is_dir():
        return sum(size(each) for each in path.iterdir())
    return path.lstat().st_size if path.exists() else 0


if __name__ == "__main__":
    given, *places = map(Path, sys.argv[1:])
    for line in patterns(given.read_text(encoding="ascii")):
        print(f"{leave_out(line, places) / 1e6:7.1f} MB {line}")
