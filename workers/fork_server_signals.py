"""Set up the fork server's signals; the fork server imports this module first.

The import makes the fork server die with the launcher; in the same way the workers die with the
fork server. A service manager sends SIGTERM to all processes at once, and Ctrl-C on a terminal
sends SIGINT to all. The fork server ignores both: the launcher stops the workers in order, and a
worker could not finish a commit in flight if the fork server, its parent, ended first. Python's
fork server ignores SIGINT too, but only after all modules are imported: Ctrl-C during the import
showed a traceback.
"""

from __future__ import annotations

import signal

from workers.parent_death import die_with_parent

die_with_parent()
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
