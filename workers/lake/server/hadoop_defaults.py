"""Keeps Hadoop's defaults for MapReduce and YARN out of the lake server's configuration.

The lake server never speaks to MapReduce or YARN. Iceberg copies Hadoop's configuration for every
Parquet file that is read or written, and ships the configuration with every table of a statement: a
seventh of the work of the server's threads in MERGEs of 200 rows. 871 of the 1,332 keys are
defaults of MapReduce and YARN, and come in with a class that Iceberg loads. Hadoop reads the
defaults by file name from the class path. A jar at the front of the class path therefore has files
of the names, without keys.

Some keys are composed of others: ``yarn.resourcemanager.address`` follows
``yarn.resourcemanager.hostname``. All defaults stay if the user sets a key of Hadoop's, or lets the
tasks run elsewhere.
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
    """The jar in ``folder``, made if missing; no jar if the folder is not writable.

    ``conf`` are the user's keys; no jar if the keys need all defaults.
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
        # Never replaces a jar: the archive of classes is void with a younger jar.
        os.link(partial, jar)
    except FileExistsError:
        pass
    except OSError:
        return ()
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
    return (jar,)
