"""The part of the planted run in which values are hidden from the lake."""

from __future__ import annotations

from typing import Any

from tests.fix_publisher import Database
from tests.harness import Pgsub


def hidden_rows(
    pgsub: Pgsub, database: Database, value: str, key_env: str, said: list[str]
) -> list[tuple[Any, ...]]:
    """The lake's rows of a table with an excluded column, and one hashed under a key.

    ``said`` takes what the commands say.
    """
    rules = {"id": {"mask": "keyed-hash", "mask_key_env": key_env}, "v": {"exclude": True}}
    entry = {
        "connection": database.dsn,
        "publication": ["pub_hidden"],
        "tables": {"planted.hidden": {"columns": rules}},
    }
    path = str(pgsub.file({"subscriptions": {"hidden": entry}}, "hidden.yaml"))
    done = [pgsub.command("create", path), pgsub.command("wait", "hidden")]
    database.run(f"INSERT INTO hidden VALUES ('{value}2', '{value}')")
    done.append(pgsub.command("wait", "hidden"))
    rows = pgsub.rows("planted", "hidden")
    done.append(pgsub.command("drop", "hidden"))
    said += [text for each in done for text in (each.stdout, each.stderr)]
    return rows
