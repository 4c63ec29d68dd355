"""Hadoop's defaults for services the lake server never speaks to, kept out of its configuration.

Iceberg copies Hadoop's configuration for each Parquet file that is read or written, and ships it
with every table of a statement: a seventh of what the server's threads did in MERGEs of 200 rows.
871 of its 1,332 keys are defaults of MapReduce and YARN, which come in with a class that Iceberg
loads. Hadoop reads them by name from the class path, so a jar that stands first there has files of
these names without a key.

Some of the keys are made of others, so all stay where somebody sets one of Hadoop's, or has the
tasks run elsewhere: ``yarn.resourcemanager.address`` follows ``yarn.resourcemanager.hostname``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

LEFT_OUT: Final = ("mapred-default.xml", "yarn-default.xml")
_NO_KEYS: Final = '<?xml version="1.0"?>\n<configuration/>\n'


def without_defaults(folder: Path, conf: Mapping[str, str]) -> tuple[Path, ...]:
    """The jar in ``folder``, made if it is not there; nothing where that cannot be done.

    ``conf`` is what the user sets; nothing either where all defaults have to stay.
    """
    if any(key == "spark.master" or key.startswith("spark.hadoop.") for key in conf):
        return ()
    jar = folder / "without-hadoop-defaults.jar"
    if jar.is_file():
        return (jar,)
    partial = jar.with_suffix(f".{secrets.token_hex(4)}")
    try:
        with zipfile.ZipFile(partial, "w") as file:
            for name in LEFT_OUT:
                file.writestr(name, _NO_KEYS)
        # Never in place of another process's: an archive of classes is void with a younger jar.
        os.link(partial, jar)
    except FileExistsError:
        pass
    except OSError:
        return ()
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
    return (jar,)
