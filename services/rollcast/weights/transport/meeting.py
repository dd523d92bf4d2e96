"""Members of a group meet in the store before they connect, because only this wait can end at any
time.

Connecting is a call of gloo or NCCL that returns when all members have come, or at a deadline of
its own. A member that disappears after it was asked to join would block a thread of every other
member until then.
"""

import threading
import time
from typing import TYPE_CHECKING

from rollcast.weights.transport.errors import GroupError

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

MAX_POLL_SECONDS = 0.05


def meet(
    store: "Store", *, rank: int, world_size: int, deadline: float, abandoned: threading.Event
) -> None:
    """Return when all ranks are here. `deadline`: monotonic seconds. Raises GroupError."""
    keys = [f"here/{peer_rank}" for peer_rank in range(world_size)]
    store.set(keys[rank], "here")
    started_at = time.monotonic()
    while not store.check(keys):
        now_seconds = time.monotonic()
        if now_seconds > deadline:
            absent = [
                str(absent_rank) for absent_rank, key in enumerate(keys) if not store.check([key])
            ]
            if not absent:
                return
            raise GroupError(
                f"rank {', '.join(absent)} did not come within {now_seconds - started_at:.1f} s"
            )
        # The interval is a share of the time waited so far, so that the last member is noticed at
        # most 10 % late; below a millisecond it would keep a core busy.
        interval = min(max(0.001, 0.1 * (now_seconds - started_at)), MAX_POLL_SECONDS)
        if abandoned.wait(interval):
            raise GroupError("abandoned while it was opened")
