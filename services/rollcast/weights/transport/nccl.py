"""NCCL's process group for one lane, made so that the process survives the loss of any other
member.

    watchdog      torch starts one thread for each group that watches its collectives. A minute
                  after a member died it ends the process. If TORCH_NCCL_BLOCKING_WAIT is set while
                  the group is constructed, torch starts neither this thread nor the one that
                  watches it, and keeps no list of works (ProcessGroupNCCL.cpp: the constructor,
                  Watchdog::run, workEnqueue). `is_completed` asks NCCL for errors by itself, and
                  `wait` returns immediately after it, so that polling replaces the watchdog. The
                  entries of torch's flight recorder for these works stay; if another group of the
                  process times out and it is dumped, it may read events that are gone.
                  TORCH_NCCL_TRACE_BUFFER_SIZE=0 switches it off.
    opening       ncclCommInitRankConfig of a blocking communicator returns when all members have
                  come, and torch knows the communicator only then: nothing can end it. Of a
                  non-blocking one it returns immediately, and torch waits at the first collective,
                  at most TORCH_NCCL_NONBLOCKING_TIMEOUT seconds; it holds the communicator's lock
                  meanwhile, so that an abort from another thread would wait too. Therefore the
                  members meet in the store first (`rollcast.weights.transport.meeting`), where
                  waiting is free to end.
    abort         takes half a second, and `abort` of the group waits for it. A lane's own thread
                  does it at its end.

torch.distributed stays the way in: other bindings would need a second NCCL, or its headers.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

_environment_lock = threading.Lock()


def make_nccl(
    store: "Store", *, rank: int, world_size: int, num_lanes: int, opening_seconds: float
) -> Any:
    """The process group of one lane; it connects at its first collective, which takes at most
    `opening_seconds`.
    """
    from torch.distributed import ProcessGroupNCCL  # absent from CPU builds of torch

    options = ProcessGroupNCCL.Options()
    # After this time torch reports an abort that does not end
    options._timeout = timedelta(seconds=60.0)
    # The variable is torch's own switch: 0 goes back to blocking communicators, should a release of
    # NCCL need it.
    if os.environ.get("TORCH_NCCL_USE_COMM_NONBLOCKING") != "0":
        options.config.blocking = 0
    # Each channel has buffers of its own at both ends, and a receiver is in every lane.
    if num_lanes > 1:
        # NCCL channels of all lanes at one receiver, at least one each. NCCL itself chooses how
        # many a single lane has.
        options.config.max_ctas = max(1, 32 // num_lanes)
    # torch reads it once for the process, at the first wait for a non-blocking communicator.
    os.environ.setdefault("TORCH_NCCL_NONBLOCKING_TIMEOUT", str(max(1, round(opening_seconds))))
    with environment(TORCH_NCCL_BLOCKING_WAIT="1"):
        return ProcessGroupNCCL(store, rank, world_size, options)


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set variables for the block.

    Other groups of the process, which have watchdogs, must not see them.
    """
    with _environment_lock:
        former_values = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in former_values.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
