"""A group of wire 2 with this process alone in it, and one whose peer never comes: what a deadline
is worth here.

open: rendezvous, communicator and greeting. broadcast: a piece of the size that travels. abort: the
end of a group, for which its own thread waits. absent: a second member that never comes; the group
must say so by itself. With NCCL two members need two cards, so the bytes between them are not
measured here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from rollcast.trainer.learner.ranks import Ranks
from rollcast.weights.plan.manifest import PIECE_BYTES
from rollcast.weights.transport.errors import GroupError
from rollcast.weights.transport.process_group import (
    GroupAddress,
    RendezvousStore,
    WeightGroup,
    backend_for,
)
from testkit.gpu import card

REPEATS = 3
PATIENCE = 3.0
"""Deadlines that an absent peer may cost before it counts as not noticed."""


def timing_row(action: str, started: float) -> dict[str, Any]:
    return {"what": action, "milliseconds": round(1e3 * (time.perf_counter() - started), 3)}


def raises_group_error(work: Callable[[], object]) -> bool:
    """Whether it ends with the error that epochs are rebuilt on."""
    try:
        work()
    except GroupError:
        return True
    return False


def wait_for_nobody(address: GroupAddress, device: torch.device) -> tuple[float, bool]:
    """Seconds until a group without its second member says so, and whether it did.

    It may hang: not in our thread.
    """
    outcomes: list[bool] = []
    thread = threading.Thread(
        target=lambda: outcomes.append(raises_group_error(partial(WeightGroup, address, device))),
        daemon=True,
    )
    started = time.perf_counter()
    thread.start()
    thread.join(PATIENCE * address.timeout_seconds)
    return time.perf_counter() - started, outcomes == [True]


def measure(name: str, ranks: Ranks, *, is_small: bool) -> dict[str, Any]:
    """Rows by action; targets: broken and absent parts are reported in time."""
    device = ranks.device
    store = RendezvousStore("127.0.0.1")
    # Seconds after which a dead member is noticed
    deadline, size = (0.5, 1 << 16) if is_small else (5.0, PIECE_BYTES)
    backend = backend_for(device)
    address = GroupAddress(1, 0, 1, backend, store.host, store.port, store.prefix, 0, 1, deadline)
    bytes_before = card.start_counting_memory(device)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
    rows: list[dict[str, Any]] = []
    groups: list[WeightGroup] = []
    for epoch in range(1, REPEATS + 1):
        started = time.perf_counter()
        groups.append(WeightGroup(replace(address, epoch=epoch), device))
        rows.append(timing_row("open", started))
    group_bytes = (
        (free - torch.cuda.mem_get_info(device)[0]) / REPEATS if device.type == "cuda" else None
    )
    piece = torch.zeros(size, dtype=torch.uint8, device=device)
    seconds = card.median_seconds(partial(groups[0].broadcast, piece), device, repeats=REPEATS)
    rows.append({"what": "broadcast of a piece", "milliseconds": round(1e3 * seconds, 3)})
    started = time.perf_counter()
    groups[0].close()
    rows.append(timing_row("abort", started))
    tells = raises_group_error(partial(groups[0].broadcast, piece))
    absent = replace(address, epoch=REPEATS + 1, world_size=2, opening_seconds=deadline)
    waited, noticed = wait_for_nobody(absent, device)
    rows.append({"what": "a peer that never comes", "milliseconds": round(1e3 * waited, 3)})
    return {
        "backend": backend,
        "deadline_seconds": deadline,
        "piece_megabytes": round(size / 1e6, 3),
        "device_bytes_of_a_group": group_bytes,
        "peak_memory_gib": card.peak_memory_gib(device, bytes_before),
        "rows": rows,
        "targets": {
            "a group that was aborted sends nothing more": tells,
            f"a peer that never comes is noticed within {PATIENCE:g} deadlines": noticed,
        },
    }
