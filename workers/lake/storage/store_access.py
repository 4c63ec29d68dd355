"""How a worker reaches a bucket: keys and address, as a table's own file access has them.

Iceberg gives every table an object that reads and writes the table's files, with properties from
the catalog and from the configuration. A worker uses the same properties, so that a table has one
set of keys. Without a key in the properties, pyarrow looks for one where the store's clients do, as
Iceberg does.

A catalog may lend keys for a time. Iceberg has new keys whenever a table is loaded; ``is_stale``
says when the worker has to ask for them.

Each kind of store has an access (``s3_access``, ``gcs_access``, ``adls_access``). The worker leaves
a table to Spark if a property asks for something that only Iceberg's client does.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, Self

from config.monitor_limits import LENT_KEYS_SECONDS
from workers.lake.storage.bucket import Bucket


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAccess(ABC):
    """Keys and address of a store. A value is never shown, and leaves the process in a file alone.

    ``handed_keys`` writes the file.

    ``expires`` is the Unix time at which lent keys end; 0 for keys that do not. ``is_lent`` says
    that the catalog lends the keys.
    """

    prefixes: ClassVar[tuple[str, ...]]
    """The beginnings of the properties that are about the store."""

    expires: float = 0.0
    is_lent: bool = field(default=False, compare=False)

    @classmethod
    @abstractmethod
    def of(cls, bucket: Bucket, properties: Mapping[str, str]) -> Self | None:
        """The access by the properties of a table's file access; None if only Iceberg has it."""

    @abstractmethod
    def file_system(self, bucket: Bucket) -> Any:
        """Pyarrow's file system for a bucket."""

    @property
    def may_end(self) -> bool:
        """May the keys end, known or not: lent keys, tokens and signatures?"""
        return self.is_lent or self.expires > 0 or bool(self._token)

    @property
    def _token(self) -> str:
        """What stands for the keys for a while."""
        return ""

    @property
    def is_stale(self) -> bool:
        """Do lent keys end within ``LENT_KEYS_SECONDS``, so that the catalog has to lend others?"""
        return 0 < self.expires < time.time() + LENT_KEYS_SECONDS

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: what Spark's tasks get is part of a plan."""
        raise TypeError("the keys of a store stay in the process")

    @classmethod
    def _understands(
        cls,
        properties: Mapping[str, str],
        understood: Collection[str],
        without_effect: tuple[str, ...],
    ) -> bool:
        """Are all properties about the store understood, or without an effect on files?"""
        about = (name for name in properties if name.startswith(cls.prefixes))
        return all(name in understood or name.startswith(without_effect) for name in about)


def seconds(milliseconds: str) -> float:
    """The Unix time in seconds of a property in milliseconds."""
    return int(milliseconds) / 1000
