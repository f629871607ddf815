# SPDX-License-Identifier: Apache-2.0
"""What else runs on the cores while fidelity.py measures: how much of them others have, and a load of its own."""

import contextlib
import os
import pathlib
import resource
import subprocess
import sys
import time

# Ends with whoever started it, however that ended.
BUSY_LOOP = """
import os, sys
parent = os.getppid()
os.sched_setaffinity(0, {int(sys.argv[1])})
while os.getppid() == parent:
    for _ in range(100000):
        pass
"""


def others_seconds(cores):
    """Processor time on `cores` that went neither to what this program waited for nor to idling; None if unknown."""
    try:
        lines = pathlib.Path("/proc/stat").read_text(encoding="ascii").splitlines()
        ticks = [list(map(int, line.split()[1:9])) for line in lines if line.split()[0] in {f"cpu{c}" for c in cores}]
    except (OSError, ValueError, IndexError):
        return None
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = sum(sum(core) - core[3] - core[4] for core in ticks)  # all but idle and iowait; stolen time is another's
    return busy / os.sysconf("SC_CLK_TCK") - used.ru_utime - used.ru_stime if ticks else None


class Watch:
    """How many of `cores` others have, on average, while it is open: `others`; None if unknown. Whatever this program
    starts meanwhile has to have ended before it is closed."""

    def __init__(self, cores):
        self.cores, self.others = cores, None

    def __enter__(self):
        self.begin, self.before = time.monotonic(), others_seconds(self.cores)
        return self

    def __exit__(self, *_):
        after = others_seconds(self.cores)
        if self.before is not None and after is not None:
            self.others = max(0.0, (after - self.before) / (time.monotonic() - self.begin))


@contextlib.contextmanager
def foreign_load(core):
    """A busy loop on a core; None: none."""
    if core is None:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", BUSY_LOOP, str(core)]) as process:
        try:
            time.sleep(0.2)
            yield
        finally:
            process.kill()
