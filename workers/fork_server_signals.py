"""Set up the fork server's signals; the fork server imports this module first.

The import makes the fork server die with the launcher; in the same way the workers die with the
fork server. A service manager sends SIGTERM to all processes at once. The fork server ignores
SIGTERM: the launcher stops the workers in order, and a worker could not finish a commit in flight
if the fork server, its parent, ended first.
"""

from __future__ import annotations

import signal

from workers.parent_death import die_with_parent

die_with_parent()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
