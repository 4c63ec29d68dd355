"""DuckDB 1.5 as a reader of a REST catalog: the tables are attached by their catalog.

The project's own DuckDB is older, and its extensions know no object store. So DuckDB 1.5 and its
extensions are fetched once, with checksums, into a folder of the cache, and run in a process of
their own. A query's rows come back as an Arrow stream.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from subscriber.demo.postgres_programs import cache_dir, locked

_LIST: Final = Path(__file__).with_name("duckdb_reader.txt")
_VERSION: Final = "1.5.5"

_SCRIPT: Final = """
import glob, json, os, sys
out = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # a slow query draws its progress on the standard output
home, given = sys.argv[1], json.load(sys.stdin)
sys.path.insert(0, home)
import duckdb, pyarrow as pa
assert duckdb.__file__.startswith(home), duckdb.__file__
connection = duckdb.connect()
for name in ("httpfs", "avro", "iceberg"):
    [file] = glob.glob(f"{home}/**/{name}.duckdb_extension", recursive=True)
    connection.execute(f"LOAD '{file}'")
for statement in given["before"]:
    connection.execute(statement)
found = connection.execute(given["query"]).fetch_arrow_table()
with out, pa.ipc.new_stream(out, found.schema) as stream:
    stream.write_table(found)
"""


def fetched(name: str, wheels: Path) -> Path:
    """The folder ``name`` of the cache with the listed wheels, fetched at the first use."""
    home = cache_dir() / name
    with locked(home.with_name(f"{home.name}.lock")):
        if not (done := home / ".done").exists():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            words = ["--require-hashes", "--target", str(home), "-r", str(wheels)]
            subprocess.run([*pip, "--disable-pip-version-check", *words], check=True)
            done.touch()
    return home


def attached(catalog: Mapping[str, str]) -> list[str]:
    """The statements of docs/reading.md that attach a REST catalog with tables on S3."""
    scheme, _, host = catalog["s3.endpoint"].partition("://")
    return [
        "CREATE SECRET (TYPE s3, URL_STYLE 'path',"
        f" KEY_ID '{catalog['s3.access-key-id']}', SECRET '{catalog['s3.secret-access-key']}',"
        f" ENDPOINT '{host}', USE_SSL {str(scheme == 'https').lower()},"
        f" REGION '{catalog['client.region']}')",
        f"ATTACH '{catalog['warehouse']}' AS lake"
        f" (TYPE iceberg, ENDPOINT '{catalog['uri']}', AUTHORIZATION_TYPE 'none')",
    ]


def query(catalog: Mapping[str, str], text: str) -> pa.Table:
    """The rows of a query on the tables of the catalog, which is called ``lake``."""
    given = json.dumps({"before": attached(catalog), "query": text})
    done = subprocess.run(
        [sys.executable, "-P", "-c", _SCRIPT, str(fetched(f"duckdb-{_VERSION}", _LIST))],
        input=given.encode(),
        capture_output=True,
        timeout=300,
    )
    assert not done.returncode, done.stderr.decode()
    return pa.ipc.open_stream(done.stdout).read_all()
