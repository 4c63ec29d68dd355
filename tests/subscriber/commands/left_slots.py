"""Slots of synchronisations, as their workers leave them."""

from __future__ import annotations

from catalog.leaked_slot import leaked_slot
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription, SyncSlot, sync_slot_name, system_identifier
from subscriber.commands.create_drop import create_subscription
from tests.subscriber.twins import Around, Slot, statement


def permanent(world: Around) -> tuple[Subscription, str]:
    """A subscription that synchronises on permanent slots, and the slot of its table."""
    create_subscription(statement(), world.context)
    return made_permanent(world)


def left_behind(world: Around) -> tuple[Subscription, str]:
    """A sync slot that is leaked, and whose table is done."""
    sub, name = permanent(world)
    (rel,) = world.store.rels(sub.oid)
    world.store.origin_drop(origin_name(sub.oid, rel.srrelid))
    world.store.put_leaked_slot(leaked_slot(sub, name, "its table is synchronised"))
    return sub, name


OTHER_WORDS = "dbname=shop user=me host=10.0.0.7"


def made_permanent(world: Around) -> tuple[Subscription, str]:
    (sub,) = world.store.subscriptions()
    sub = world.store.update_subscription(sub.oid, sync_slot=SyncSlot.PERMANENT)
    (rel,) = world.store.rels(sub.oid)
    name = sync_slot_name(sub.oid, rel.srrelid, system_identifier(sub))
    world.publisher.slots[name] = Slot()
    world.store.origin_create(origin_name(sub.oid, rel.srrelid))
    return sub, name
