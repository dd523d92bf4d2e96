"""Free ports for services whose port other processes must know before it listens."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.connections.http import listen

KERNELS_CHOICE = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""First and last port that the kernel hands out by itself; on Linux 32768 to 60999 by default."""
FIRST = 1_025
FEWEST = 1_000
ATTEMPTS = 100


def ports_below(range_file: Path) -> range:
    """At most 10,000 below those that the kernel hands out; empty where nearly none are left.

    No connection and no server at port 0 takes one between its choice and its service's start, which may be a minute
    later.
    """
    end = 30_000
    with contextlib.suppress(OSError):
        end = min(end, int(range_file.read_text().split()[0]))
    ports = range(max(FIRST, end - 10_000), end)
    return ports if len(ports) >= FEWEST else range(0)


PORTS = ports_below(KERNELS_CHOICE)
_candidates = itertools.cycle(random.SystemRandom().sample(PORTS, len(PORTS)))
"""One order per process, so that none is given twice and two processes seldom choose the same."""
_kept: dict[str, socket.socket] = {}
"""What `keep_port` holds, by name."""


def free_port(host: str) -> int:
    """A port at which `host` can listen. Raises UserError where it cannot listen at all."""
    for port in itertools.islice(_candidates, ATTEMPTS - 1):
        try:
            listen(host, port, setting="port").close()
        except UserError:
            continue
        return port
    with listen(host, 0, setting="port") as listener:
        return int(listener.getsockname()[1])


def keep_port(host: str, port: int) -> bool:
    """Take a port for this process until it ends, although its service listens later; False = another run has taken it.

    A socket of that name in Linux's abstract namespace stands for the port: the kernel removes it with its process.
    """
    name = f"\0rollcast-port-{host}-{port}"
    if name not in _kept:
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            mark.bind(name)
        except OSError:
            mark.close()
            return False
        _kept[name] = mark
    return True
