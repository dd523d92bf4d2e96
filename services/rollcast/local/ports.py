"""Free ports for services whose port other processes must know before it listens."""

from __future__ import annotations

import itertools
import random

from rollcast.config.errors import UserError
from rollcast.connections.http import listen

PORTS = range(20_000, 30_000)
"""Below those that the kernel hands out by itself (from 32768 on Linux, from 49152 elsewhere): no connection and no
server at port 0 takes one between its choice and its service's start, which may be a minute later."""
ATTEMPTS = 100
_candidates = itertools.cycle(random.SystemRandom().sample(PORTS, len(PORTS)))
"""One order per process, so that none is given twice and two processes seldom choose the same."""


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
