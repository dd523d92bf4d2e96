"""The age of this process, independent of changes of the wall clock."""

import os
import time
from pathlib import Path


def process_age_seconds() -> float:
    """Seconds since this process started, to a hundredth; the time that the machine was suspended
    counts too.
    """
    # proc(5): the 22nd field is the start in ticks since boot. The 2nd is a name in brackets that
    # may hold anything.
    after_name = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    started = int(after_name[22 - 3]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
