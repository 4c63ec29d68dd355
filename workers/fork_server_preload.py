"""Import all modules of a worker once, in the fork server.

Importing Arrow, numba, the Spark Connect client and the compiled kernels takes seconds of CPU;
forking a process after the imports takes milliseconds. No import opens a connection or starts a
thread: connections and threads would be broken in a forked child.
"""

from __future__ import annotations

import workers.apply.worker
import workers.lake.connect.session
import workers.main
import workers.sync.worker  # noqa: F401 (imported for the forked worker)
from workers.columnar.warm import warm

warm()
