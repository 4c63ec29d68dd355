"""List the PostgreSQL types that can be read in binary form, with the form of each type.

The send function of a type determines the binary form, the output function the text. Types with a
pair of PostgreSQL's functions can be read, including user-defined types on top of such a pair (a
domain, an enum, an array or a range). The OID alone identifies a built-in type; for user-defined
types the worker asks the publisher for a ``TypeRow``.

Not read are: types whose text depends on the publisher's catalog or settings (regclass, money),
text search, composites inside of arrays or composites, and types with user-defined functions.

Trace: a column of a domain over int4[]. The publisher's row of the domain has the base _int4, and
_int4 is built in as the array of int4. ``form_of`` returns the form of an array with the part int4,
and ``compile_forms`` makes two nodes: one for the array, one for the elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from workers.columnar.binary import containers as nested
from workers.columnar.binary import scalars as scalars

FIRST_NORMAL_OID: Final = 16_384
"""The first OID of user-defined types; built-in types are equal on every publisher."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a type's values: a kind, and the forms of its parts.

    ``parts`` are an array's elements, a range's bounds, a multirange's ranges, a composite's
    fields. ``separator`` stands between an array's elements.
    """

    kind: int
    parts: tuple[Form, ...] = ()
    separator: str = ","


@dataclass(frozen=True, slots=True)
class TypeRow:
    """A row of the publisher's pg_type; ``send`` and ``output`` are names of C functions.

    ``parts`` are OIDs as in ``Form``. ``base`` is the type below a domain, else 0.
    """

    oid: int
    base: int
    send: str
    output: str
    parts: tuple[int, ...] = ()
    separator: str = ","


TEXT_ONLY: Final = Form(0)
"""A type without a send function: a walsender sends the values as text."""

_ACLITEM: Final = 1033  # the only built-in column type without a send function

# name, OID, OID of the array, kind, output and send function
BUILT_IN: Final[tuple[tuple[str, int, int, int, str, str], ...]] = (
    ("bool", 16, 1000, scalars.BOOL, "boolout", "boolsend"),
    ("bytea", 17, 1001, scalars.BYTEA, "byteaout", "byteasend"),
    ("char", 18, 1002, scalars.CHAR, "charout", "charsend"),
    ("name", 19, 1003, scalars.TEXT, "nameout", "namesend"),
    ("int8", 20, 1016, scalars.INT8, "int8out", "int8send"),
    ("int2", 21, 1005, scalars.INT2, "int2out", "int2send"),
    ("int4", 23, 1007, scalars.INT4, "int4out", "int4send"),
    ("text", 25, 1009, scalars.TEXT, "textout", "textsend"),
    ("oid", 26, 1028, scalars.OID, "oidout", "oidsend"),
    ("tid", 27, 1010, scalars.TID, "tidout", "tidsend"),
    ("xid", 28, 1011, scalars.OID, "xidout", "xidsend"),
    ("cid", 29, 1012, scalars.OID, "cidout", "cidsend"),
    ("json", 114, 199, scalars.TEXT, "json_out", "json_send"),
    ("xml", 142, 143, scalars.TEXT, "xml_out", "xml_send"),
    ("xid8", 5069, 271, scalars.XID8, "xid8out", "xid8send"),
    ("point", 600, 1017, scalars.POINT, "point_out", "point_send"),
    ("lseg", 601, 1018, scalars.LSEG, "lseg_out", "lseg_send"),
    ("path", 602, 1019, scalars.PATH, "path_out", "path_send"),
    ("box", 603, 1020, scalars.BOX, "box_out", "box_send"),
    ("polygon", 604, 1027, scalars.POLYGON, "poly_out", "poly_send"),
    ("line", 628, 629, scalars.LINE, "line_out", "line_send"),
    ("cidr", 650, 651, scalars.CIDR, "cidr_out", "cidr_send"),
    ("float4", 700, 1021, scalars.FLOAT4, "float4out", "float4send"),
    ("float8", 701, 1022, scalars.FLOAT8, "float8out", "float8send"),
    ("circle", 718, 719, scalars.CIRCLE, "circle_out", "circle_send"),
    ("macaddr8", 774, 775, scalars.MACADDR8, "macaddr8_out", "macaddr8_send"),
    ("macaddr", 829, 1040, scalars.MACADDR, "macaddr_out", "macaddr_send"),
    ("inet", 869, 1041, scalars.INET, "inet_out", "inet_send"),
    ("bpchar", 1042, 1014, scalars.TEXT, "bpcharout", "bpcharsend"),
    ("varchar", 1043, 1015, scalars.TEXT, "varcharout", "varcharsend"),
    ("date", 1082, 1182, scalars.DATE, "date_out", "date_send"),
    ("time", 1083, 1183, scalars.TIME, "time_out", "time_send"),
    ("timestamp", 1114, 1115, scalars.TIMESTAMP, "timestamp_out", "timestamp_send"),
    ("timestamptz", 1184, 1185, scalars.TIMESTAMPTZ, "timestamptz_out", "timestamptz_send"),
    ("interval", 1186, 1187, scalars.INTERVAL, "interval_out", "interval_send"),
    ("timetz", 1266, 1270, scalars.TIMETZ, "timetz_out", "timetz_send"),
    ("bit", 1560, 1561, scalars.BITS, "bit_out", "bit_send"),
    ("varbit", 1562, 1563, scalars.BITS, "varbit_out", "varbit_send"),
    ("numeric", 1700, 1231, scalars.NUMERIC, "numeric_out", "numeric_send"),
    ("refcursor", 1790, 2201, scalars.TEXT, "textout", "textsend"),
    ("uuid", 2950, 2951, scalars.UUID, "uuid_out", "uuid_send"),
    ("pg_lsn", 3220, 3221, scalars.PG_LSN, "pg_lsn_out", "pg_lsn_send"),
    ("jsonb", 3802, 3807, scalars.VERSIONED, "jsonb_out", "jsonb_send"),
    ("jsonpath", 4072, 4073, scalars.VERSIONED, "jsonpath_out", "jsonpath_send"),
)

# name, OID, OID of the array, OID of the bounds; the multirange's OID and its array's
BUILT_IN_RANGES: Final[tuple[tuple[str, int, int, int, int, int], ...]] = (
    ("int4range", 3904, 3905, 23, 4451, 6150),
    ("numrange", 3906, 3907, 1700, 4532, 6151),
    ("tsrange", 3908, 3909, 1114, 4533, 6152),
    ("tstzrange", 3910, 3911, 1184, 4534, 6153),
    ("daterange", 3912, 3913, 1082, 4535, 6155),
    ("int8range", 3926, 3927, 20, 4536, 6157),
)

_SCALARS: Final = {(row[4], row[5]): row[3] for row in BUILT_IN} | {
    ("enum_out", "enum_send"): scalars.TEXT
}
_CONTAINERS: Final = {
    ("array_out", "array_send"): nested.ARRAY,
    ("range_out", "range_send"): nested.RANGE,
    ("multirange_out", "multirange_send"): nested.MULTIRANGE,
    ("record_out", "record_send"): nested.RECORD,
}


def _built_in() -> dict[int, Form]:
    forms: dict[int, Form] = {_ACLITEM: TEXT_ONLY}
    for name, oid, array, kind, _, _ in BUILT_IN:
        forms[oid] = Form(kind)
        separator = ";" if name == "box" else ","
        forms[array] = Form(nested.ARRAY, (forms[oid],), separator)
    for _, oid, array, bounds, multirange, multirange_array in BUILT_IN_RANGES:
        forms[oid] = Form(nested.RANGE, (forms[bounds],))
        forms[array] = Form(nested.ARRAY, (forms[oid],))
        forms[multirange] = Form(nested.MULTIRANGE, (forms[oid],))
        forms[multirange_array] = Form(nested.ARRAY, (forms[multirange],))
    return forms


_FORMS: Final = _built_in()


def form_of(oid: int, rows: Mapping[int, TypeRow]) -> Form | None:
    """The form of a type, None for an unreadable type; ``rows`` are user-defined types."""
    if oid < FIRST_NORMAL_OID:
        return _FORMS.get(oid)
    row = rows.get(oid)
    while row is not None and row.base:
        if row.base < FIRST_NORMAL_OID:
            return _FORMS.get(row.base)
        row = rows.get(row.base)
    if row is None:
        return None
    if not row.send:
        return TEXT_ONLY
    functions = (row.output, row.send)
    if functions in _SCALARS:
        return Form(_SCALARS[functions])
    kind = _CONTAINERS.get(functions)
    if kind is None:
        return None
    parts: list[Form] = []
    for part in row.parts:
        form = form_of(part, rows)
        if form is None or not _fits(kind, form.kind):
            return None
        parts.append(form)
    if not parts and kind != nested.RECORD:
        return None
    return Form(kind, tuple(parts), row.separator)


def _fits(kind: int, part: int) -> bool:
    """True if the kernels can read the part inside of the container."""
    if part == TEXT_ONLY.kind:
        return False
    if kind == nested.RANGE:
        return part < nested.RANGE
    if kind == nested.MULTIRANGE:
        return part == nested.RANGE
    if kind == nested.ARRAY:
        return part not in (nested.ARRAY, nested.RECORD)
    return part != nested.RECORD


@dataclass(frozen=True, slots=True)
class Nodes:
    """Forms for the kernels; ``roots`` has the node of each column, -1 without a node."""

    table: npt.NDArray[np.int64]
    roots: npt.NDArray[np.int64]


def compile_forms(forms: Sequence[Form | None]) -> Nodes:
    """The nodes of a table's columns."""
    table: list[tuple[int, int, int, int]] = []
    roots: list[int] = []
    for form in forms:
        if form is None or form == TEXT_ONLY:
            roots.append(-1)
            continue
        row = _node(form, table)
        roots.append(len(table))
        table.append(row)
    cells = np.array(table, np.int64).reshape(-1, nested.NODE_CELLS)
    return Nodes(cells, np.array(roots, np.int64))


def _node(form: Form, table: list[tuple[int, int, int, int]]) -> tuple[int, int, int, int]:
    """Make the row of a form; put the rows of the parts side by side into the table."""
    rows = [_node(part, table) for part in form.parts]
    first = len(table)
    table.extend(rows)
    return form.kind, first, len(rows), ord(form.separator)


def unknown_types(oids: Iterable[int]) -> set[int]:
    """The types to look up on the publisher."""
    return {oid for oid in oids if oid >= FIRST_NORMAL_OID}
