"""Read an Avro file, as Iceberg writes manifests and manifest lists. Pure: bytes in, records out.

A file is a header (magic, the schema as JSON, the codec, a marker of 16 bytes) and blocks: the
number of records, the number of bytes, the records, the marker again. So a file that was cut off,
or holds zeros in place of its end, is noticed.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

_MAGIC: Final = b"Obj\x01"
_MARKER: Final = 16
"""The length of a file's marker; Avro fixes the length."""
_HEADER: Final = {"type": "map", "values": "bytes"}


class NotWholeError(ValueError):
    """The bytes are not a whole Avro file."""


class UnknownCodecError(ValueError):
    """The blocks are compressed by a codec other than null and deflate."""


def read_records(data: bytes) -> list[Any]:
    """All records. Raises ``NotWholeError``, or ``UnknownCodecError``."""
    try:
        return list(_records(io.BytesIO(data), len(data)))
    except (IndexError, KeyError, TypeError, struct.error, zlib.error, UnicodeDecodeError) as error:
        raise NotWholeError(type(error).__name__) from None
    except json.JSONDecodeError:
        raise NotWholeError("the schema is cut off") from None


def _records(file: io.BytesIO, size: int) -> Iterator[Any]:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise NotWholeError("the file does not begin like an Avro file")
    header = _value(file, _HEADER, {})
    marker = _bytes(file, _MARKER)
    schema = json.loads(header["avro.schema"])
    codec = header.get("avro.codec", b"null")
    names: dict[str, Any] = {}
    while file.tell() < size:
        count, block = _long(file), _bytes(file, _long(file))
        if _bytes(file, _MARKER) != marker:
            raise NotWholeError("a block does not end with the file's marker")
        if codec == b"deflate":
            block = zlib.decompress(block, -zlib.MAX_WBITS)
        elif codec != b"null":
            raise UnknownCodecError(codec.decode("ascii", "replace"))
        records = io.BytesIO(block)
        for _ in range(count):
            yield _value(records, schema, names)


def _value(file: io.BytesIO, schema: Any, names: dict[str, Any]) -> Any:
    """The next value. ``names`` are the named types so far."""
    kind = schema if isinstance(schema, str) else None
    if isinstance(schema, list):
        return _value(file, schema[_long(file)], names)
    if kind is None:
        kind = schema["type"]
        if not isinstance(kind, str):
            return _value(file, kind, names)
    if kind in _PLAIN:
        return _PLAIN[kind](file)
    if kind in names:
        return _value(file, names[kind], names)
    if "name" in schema:
        names[schema["name"]] = schema
    return _NESTED[kind](file, schema, names)


def _record(file: io.BytesIO, schema: Mapping[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: _value(file, each["type"], names) for each in schema["fields"]}


def _array(file: io.BytesIO, schema: Mapping[str, Any], names: dict[str, Any]) -> list[Any]:
    return [_value(file, schema["items"], names) for _ in _items(file)]


def _map(file: io.BytesIO, schema: Mapping[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    return {_text(file): _value(file, schema["values"], names) for _ in _items(file)}


def _items(file: io.BytesIO) -> Iterator[None]:
    """Once for every item of an array or a map."""
    while count := _long(file):
        if count < 0:  # a block that tells the number of its bytes as well
            _long(file)
        yield from (None for _ in range(abs(count)))


def _fixed(file: io.BytesIO, schema: Mapping[str, Any], _: dict[str, Any]) -> bytes:
    return _bytes(file, schema["size"])


def _long(file: io.BytesIO) -> int:
    """A number in zigzag form, seven bits a byte."""
    shift = number = 0
    while True:
        byte = file.read(1)[0]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1)
        shift += 7


def _bytes(file: io.BytesIO, size: int) -> bytes:
    found = file.read(size) if size >= 0 else b""
    if len(found) != size:
        raise NotWholeError("the file is cut off")
    return found


def _text(file: io.BytesIO) -> str:
    return _bytes(file, _long(file)).decode()


_PLAIN: Final = {
    "null": lambda _: None,
    "boolean": lambda file: _bytes(file, 1) == b"\x01",
    "int": _long,
    "long": _long,
    "float": lambda file: struct.unpack("<f", _bytes(file, 4))[0],
    "double": lambda file: struct.unpack("<d", _bytes(file, 8))[0],
    "bytes": lambda file: _bytes(file, _long(file)),
    "string": _text,
}
_NESTED: Final = {"record": _record, "array": _array, "map": _map, "fixed": _fixed}
