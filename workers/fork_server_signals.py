"""What the fork server imports first, for what importing it does.

The fork server dies with the launcher, and by the same means the workers die with the fork server.
A SIGTERM that a service manager sends to everybody at once is not for it: the launcher stops the
workers in order, and they could not finish a commit in flight if their parent went first.
"""

from __future__ import annotations

import signal

from workers.process.parent_death import die_with_parent

die_with_parent()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
