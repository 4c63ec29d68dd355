"""What the fork server imports once, so that a worker begins with everything in place.

Importing Arrow, numba, the Spark Connect client and our kernels takes seconds of CPU; forking a
process that has done so takes milliseconds. Nothing here opens a connection or starts a thread:
both would be broken in a forked child.
"""

from __future__ import annotations

import workers.apply.worker
import workers.lake.connect.session
import workers.main
import workers.sync.worker  # noqa: F401 (the same)
from workers.columnar.warm import warm

warm()
