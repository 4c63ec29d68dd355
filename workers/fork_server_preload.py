"""Import all modules of a worker once, in the fork server.

Importing Arrow, numba, the Spark Connect client and the compiled kernels takes seconds of CPU;
forking a process after the imports takes milliseconds. No import opens a connection or starts a
thread: connections and threads would be broken in a forked child.

The objects of the modules live for ever, so the garbage collector of a forked process leaves them
alone (``gc.freeze``). A collection writes to every object that it looks at: each worker would copy
the pages of all modules, and look at 230,000 objects again and again.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 (imported at the first look-up of a host)
import gc

import workers.apply.worker
import workers.lake.connect.session
import workers.main
import workers.sync.worker  # noqa: F401 (imported for the forked worker)
from workers.columnar.compiler_pages import give_back_compiler
from workers.columnar.warm import compile_apart, warm

compile_apart()
warm()
give_back_compiler()
gc.collect()
gc.freeze()
