"""Carries the jars to a machine without a network: a folder with the jars and their checksums.

The folder has the jars' files and ``SHA256SUMS``, which ``sha256sum --check`` reads: the jars of
every configuration, and of one configuration the jars that only the configuration needs. Compiled
kernels and the class archive are not carried: compiled kernels run on one kind of processor, a
class archive fits one Java, and a machine makes both without a network.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from catalog.errcodes import UNDEFINED_FILE, IoError
from workers.lake.server.jars import locked, put, sha256
from workers.lake.server.known_jars import OPTIONAL, needed_jars

SUMS: Final = "SHA256SUMS"


def save_jars(jars: Sequence[Path], folder: Path) -> None:
    """Copy the resolved jars to a folder, which is made if need be; 58030 if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in jars:
            partial = folder / f".{path.name}"
            shutil.copyfile(path, partial)
            partial.replace(folder / path.name)
        lines = "".join(f"{sha256(path)}  {path.name}\n" for path in jars)
        (folder / SUMS).write_text(lines, encoding="ascii")
    except OSError as error:
        raise IoError(f'could not write to folder "{folder}": {error.strerror}') from None


def take_jars(folder: Path, home: Path, catalog: Mapping[str, str] | None = None) -> None:
    """Copy the jars of a folder to ``home``.

    58P01 if the folder lacks a jar that ``catalog`` needs, 58030 if a file is not the jar. Every
    file is compared with the checksum in this program, so ``SHA256SUMS`` is for people.
    """
    needed = needed_jars(catalog or {})
    for jar in needed:
        if not (folder / jar.file_name).is_file():
            raise IoError(
                f'could not find "{jar.file_name}" in folder "{folder}"',
                hint="Make the folder with pgsub fetch --to DIR on a machine with a network and "
                "the same version of pgsub, with the same configuration file.",
                sqlstate=UNDEFINED_FILE,
            )
    more = [jar for jar in OPTIONAL if jar not in needed and (folder / jar.file_name).is_file()]
    try:
        with locked(home):
            for jar in (*needed, *more):
                put(jar, folder / jar.file_name, home)
    except OSError as error:
        raise IoError(f'could not copy jars to folder "{home}": {error.strerror}') from None
