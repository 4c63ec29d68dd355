"""The lake types of published columns, and the masks of hashed ones, with keys of the environment.

The configuration names environment variables. A key is read where a mask is made, and is in no
object with a text: no log, error, plan or status view can show the key.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from catalog.errcodes import DatatypeMismatch, InvalidParameterValue
from catalog.pg_subscription import TableOptions
from workers.changes.declared_type import type_of
from workers.lake.table import LakeIdent
from workers.lake.typemap import PgType, lake_type

if TYPE_CHECKING:
    from workers.columnar.masks import Mask

_TOLD: Final = b"pgsub: which key?"
_TOLD_DIGITS: Final = 16


def column_type(name: str, type: PgType, options: TableOptions) -> pa.DataType:
    """The type of a lake column made for a published column."""
    if name in options.hashed:
        return pa.string()
    declared = type_of(name, options)
    return declared or lake_type(type, as_text=options.on_unrepresentable == "text")


def masks_of(options: TableOptions) -> dict[str, Mask]:
    """The masks of the hashed columns, by the publisher's names; 22023 without a key."""
    if not options.hashed:
        return {}
    from workers.columnar.masks import Mask  # commands need no kernel

    return {name: Mask(key_of(env) if env else None) for name, env in options.hashed.items()}


def key_of(env: str) -> bytes:
    """The key in an environment variable; 22023 if there is none."""
    key = os.environ.get(env, "")
    if not key:
        raise InvalidParameterValue(
            f'environment variable "{env}" is not set',
            hint="The launcher needs it: mask_key_env of a column names it.",
        )
    return os.fsencode(key)


def told_masks(options: TableOptions) -> dict[str, str]:
    """How each hashed column is hashed: equal texts say that equal values have equal hashes."""
    return {
        name: f"keyed-hash {_told_key(env)}" if env else "sha256"
        for name, env in options.hashed.items()
    }


def _told_key(env: str) -> str:
    """A text by which a key is recognised; it says nothing else of the key."""
    return hmac.new(key_of(env), _TOLD, hashlib.sha256).hexdigest()[:_TOLD_DIGITS]


def check_lake_types(
    options: TableOptions, types: Mapping[str, pa.DataType], ident: LakeIdent
) -> None:
    """Raise 42804 if a hashed column is no text in the lake, or a column not of its declared type.

    ``types`` has the lake types of the columns that are published, by the publisher's names.
    """
    for name, text in options.types:
        declared, type = type_of(name, options), types.get(name)
        if type is None or declared is None or type == declared:
            continue
        if not _are_texts(type, declared):
            raise DatatypeMismatch(
                f'column "{name}" of lake table "{ident}" is not of type {text}',
                detail=f"Its type is {type}.",
                hint="pgsub refresh NAME --recopy TABLE makes it anew; an adopted lake table has "
                "to have the type.",
            )
    for name in options.hashed.keys() & types.keys():
        type = types[name]
        if not _are_texts(type):
            raise DatatypeMismatch(
                f'lake column of masked column "{name}" of lake table "{ident}" is no text',
                detail=f"Its type is {type}.",
                hint="pgsub refresh NAME --recopy TABLE makes it text; an adopted lake table has "
                "to have a string there.",
            )


def _are_texts(*types: pa.DataType) -> bool:
    return all(pa.types.is_string(type) or pa.types.is_large_string(type) for type in types)
