"""Look for tables that joined or left a publication, for subscriptions with ``refresh: auto``.

The launcher knows no command, and asks no publisher. So a short-lived process looks for each such
subscription, twice a minute, and refreshes the subscription if the publication has other tables.
The launcher gets the module that the process runs by name. A subscription whose process fails is
looked at less and less often, and a process that takes too long is ended: the publisher is frozen,
or a batch takes long. The next look begins anew, because a refresh stores all or nothing.

Trace of a subscription::

    0      started
    30     forked: nothing has changed, status 0
    60     forked: the publisher is away, status 1
    120    forked: status 1
    240    forked: a table has joined, status 0
    270    forked
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import Refresh, SubCreate, Subscription
from config.monitor_limits import PUBLICATION_LOOK_MOST_SECONDS, PUBLICATION_LOOK_SECONDS
from subscriber.status.lake_tables import ForkedProcess

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Look:
    """The looks for a subscription; ``due`` is the next one's time, or the end of patience."""

    due: float
    pause: float = PUBLICATION_LOOK_SECONDS
    process: ForkedProcess | None = None


class PublicationLook:
    """Decides when a process looks; the launcher's loop calls ``poll``.

    ``start`` forks a process with the given arguments; None if the launcher has no module to run.
    """

    def __init__(
        self,
        start: Callable[[list[str]], ForkedProcess] | None,
        subscriptions: Callable[[], Sequence[Subscription]],
        now: float,
    ) -> None:
        self._start = start
        self._subscriptions = subscriptions
        self._looks: dict[str, _Look] = {}
        self._due = now + PUBLICATION_LOOK_SECONDS

    def poll(self, now: float) -> None:
        """Note the ends of processes, and start the processes that are due."""
        for name, look in self._looks.items():
            self._take_end(name, look, now)
        if self._start is None or now < self._due:
            return
        self._due = now + PUBLICATION_LOOK_SECONDS
        with suppress(ReplicationError):  # of the catalog, say of a full disk
            wanted = {sub.subname for sub in self._subscriptions() if _is_refreshed(sub)}
            for name in self._looks.keys() - wanted:
                if self._looks[name].process is None:
                    del self._looks[name]
            for name in sorted(wanted):
                look = self._looks.setdefault(name, _Look(now))
                if look.process is None and now >= look.due:
                    self._begin(self._start, name, now)

    def next_deadline(self) -> float | None:
        """When the next ``poll`` is due; the end of a process wakes the loop anyway."""
        if self._start is None:
            return None
        return min([self._due, *(each.due for each in self._looks.values() if each.process)])

    def stop(self) -> None:
        """Kill the processes; a refresh stores all or nothing."""
        for look in self._looks.values():
            if look.process is not None:
                look.process.kill()
                look.process.wait()
        self._looks.clear()

    def _begin(self, start: Callable[[list[str]], ForkedProcess], name: str, now: float) -> None:
        look = self._looks[name]
        try:
            look.process = start([name])
        except OSError as error:
            log.warning("action=publication_look could not fork: %s", error.strerror)
            return
        look.due = now + PUBLICATION_LOOK_MOST_SECONDS

    def _take_end(self, name: str, look: _Look, now: float) -> None:
        if look.process is None:
            return
        status = look.process.poll()
        if status is None:
            if now < look.due:
                return
            log.warning('action=publication_look a look for subscription "%s" took too long', name)
            look.process.kill()
            status = look.process.wait() or 1
        look.process = None
        longer = min(2 * look.pause, PUBLICATION_LOOK_MOST_SECONDS)
        look.pause = longer if status else PUBLICATION_LOOK_SECONDS
        look.due = now + (look.pause if status else 0.0)


def _is_refreshed(sub: Subscription) -> bool:
    ready = sub.subenabled and sub.subcreate is SubCreate.READY
    return ready and sub.refresh is Refresh.AUTO
