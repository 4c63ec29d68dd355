"""Faults of the store and of the catalog, where the lake is on S3 behind a REST catalog.

A plan is data, as for other faults (``tests.chaos.faults``). The proxies before the store and the
catalog do them: ``times`` requests are refused, cut, or done and forgotten; every request waits;
or nobody listens for a while. Commits and uploads that took effect and are denied afterwards come
twice as often as others.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from threading import Event
from typing import Final

from tests.chaos.faults import Fault
from tests.lake import http_proxy
from tests.lake.http_proxy import HttpProxy, Kind
from tests.lake.lake_stack import LakeStack

_TABLES: Final = r"/namespaces/.+/tables/"
_COMMIT: Final = rf"{_TABLES}[^/]+$|/transactions/commit$"
_FILE: Final = r"\.(parquet|avro|puffin)"
_STORE: Final = "store"
_CATALOG: Final = "catalog"


@dataclass(frozen=True, slots=True)
class _Requests:
    """Requests that are disturbed, at most so many, with an answer of these."""

    where: str
    kind: Kind
    method: str
    path: str
    most: int
    answers: tuple[int, ...] = (503,)


_DISTURBED: Final = {
    "store refuses": _Requests(_STORE, Kind.REFUSED, "PUT|GET|HEAD", _FILE, 40, (500, 503)),
    "store cuts": _Requests(_STORE, Kind.CUT, "PUT|GET|HEAD", _FILE, 12),
    "store truncates": _Requests(_STORE, Kind.TRUNCATED, "GET", _FILE, 12),
    "store forgets uploads": _Requests(_STORE, Kind.FORGOTTEN, "PUT", _FILE, 6, (500, 503)),
    "store cuts behind uploads": _Requests(_STORE, Kind.CUT_BEHIND, "PUT", _FILE, 6),
    "catalog refuses": _Requests(_CATALOG, Kind.REFUSED, "POST|GET", _TABLES, 8, (429, 500, 503)),
    "catalog cuts": _Requests(_CATALOG, Kind.CUT, "POST|GET", _TABLES, 5),
    "catalog truncates": _Requests(_CATALOG, Kind.TRUNCATED, "POST|GET", _TABLES, 5),
    "catalog forgets commits": _Requests(
        _CATALOG, Kind.FORGOTTEN, "POST", _COMMIT, 12, (500, 502, 503, 504)
    ),
    "catalog cuts behind commits": _Requests(_CATALOG, Kind.CUT_BEHIND, "POST", _COMMIT, 6),
}
_SLOW: Final = {"store is slow": _STORE, "catalog is slow": _CATALOG}
_DOWN: Final = {"store is down": _STORE, "catalog is down": _CATALOG}
_BEHIND: Final = tuple(
    kind for kind, each in _DISTURBED.items() if each.kind in (Kind.FORGOTTEN, Kind.CUT_BEHIND)
)
LAKE_KINDS: Final = (*_DISTURBED, *_BEHIND, *_SLOW, *_DOWN)

_PAUSE: Final = 0.15
"""Seconds that a request waits where store or catalog is slow."""
_LOOK: Final = 0.05
"""Seconds between two looks."""


def plan_lake_faults(chance: random.Random, transactions: int) -> list[Fault]:
    """Two to four faults."""
    faults = []
    for _ in range(chance.randint(2, 4)):
        kind = chance.choice(LAKE_KINDS)
        after, seconds = chance.randrange(transactions), round(chance.uniform(1.0, 10.0), 1)
        times, status = 0, 0
        if kind in _DISTURBED:
            times = chance.randint(1, _DISTURBED[kind].most)
            status = chance.choice(_DISTURBED[kind].answers)
        faults.append(Fault(after, kind, seconds, times=times, status=status))
    return faults


def cause_at_lake(fault: Fault, stack: LakeStack, ended: Event) -> str:
    """Do it for so many seconds, or until the requests have come; a word on what was hit."""
    if fault.kind in _DISTURBED:
        return _disturb(fault, _DISTURBED[fault.kind], stack, ended)
    where = (_SLOW | _DOWN)[fault.kind]
    proxy = _proxy(stack, where)
    before = len(proxy.requests)
    with proxy.down() if fault.kind in _DOWN else nullcontext():
        proxy.pause = _PAUSE if fault.kind in _SLOW else 0.0
        try:
            ended.wait(fault.seconds)
        finally:
            proxy.pause = 0.0
    # A proxy that is down counts nobody.
    return where if fault.kind in _DOWN else _told(len(proxy.requests) - before)


def _disturb(fault: Fault, requests: _Requests, stack: LakeStack, ended: Event) -> str:
    told = http_proxy.Fault(
        requests.kind, requests.method, requests.path, fault.times, fault.status
    )
    with _proxy(stack, requests.where).disturbed(told):
        _wait(lambda: told.met == told.times, fault.seconds, ended)
    return _told(told.met)


def _wait(come: Callable[[], bool], seconds: float, ended: Event) -> None:
    for _ in range(int(seconds / _LOOK) + 1):
        if come() or ended.wait(_LOOK):
            return


def _proxy(stack: LakeStack, where: str) -> HttpProxy:
    return stack.store_proxy if where == _STORE else stack.catalog_proxy


def _told(count: int) -> str:
    return f"{count} requests" if count else ""
