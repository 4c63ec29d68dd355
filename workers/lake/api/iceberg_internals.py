"""What pgsub needs of Iceberg's classes and may not call or read from outside."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

_PRODUCER: Final = "org.apache.iceberg.SnapshotProducer"
"""The class of all commits that add a snapshot."""


def snapshot_method(gateway: Any, name: str, *types: str) -> Any:
    """A method of Iceberg's commits of snapshots that only Iceberg's own classes may call."""
    of = gateway.jvm.java.lang.Class
    given = gateway.new_array(of, len(types))
    for at, each in enumerate(types):
        given[at] = of.forName(each)
    method = of.forName(_PRODUCER).getDeclaredMethod(name, given)
    method.setAccessible(True)
    return method


def private_value(owner: Any, name: str) -> Any:
    """The value of a private field of a Java object, or of the object's class."""
    field = owner.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(owner)


class KnownState:
    """Makes Iceberg's commit of a snapshot use the state of a table object.

    ``SnapshotProducer.apply`` reads the table first: a request to the catalog, and with some
    catalogs a metadata file. Behind the publication of the batch before, the state is known. Java
    17 lets a program set the field.
    """

    def __init__(self, gateway: Any) -> None:
        self._transactions = gateway.jvm.org.apache.iceberg.Transactions
        producer = gateway.jvm.java.lang.Class.forName(_PRODUCER)
        self._operations = producer.getDeclaredField("ops")
        self._operations.setAccessible(True)

    @contextlib.contextmanager
    def given(self, update: Any, table: Any | None) -> Iterator[None]:
        """Within the block ``update`` takes the state of ``table``; the newest state for None.

        The operations of a transaction keep the state. The transaction is never committed.
        """
        if table is None:
            yield
            return
        newest = table.operations()
        held = self._transactions.replaceTableTransaction(table.name(), newest, newest.current())
        self._operations.set(update, held.table().operations())
        try:
            yield
        finally:
            self._operations.set(update, newest)
