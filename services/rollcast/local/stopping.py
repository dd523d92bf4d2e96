"""How long each service of a run may take to end, once all of them are to.

finished      what nobody waits for has a few seconds, what is told to others its own limit
given up      each has its own limit
interrupted   all of them together have one deadline, of which each order leaves a share to the later ones; whoever
              saves what would be lost has its own limit beyond that
"""

from __future__ import annotations

from rollcast.local.process import ServiceSpec

FINISHED_SECONDS = 5.0
"""When the run is finished, nobody waits for unfinished work."""
SHARE_SECONDS = 2.0
"""Of an interrupt's deadline for each later order, and the least that an order has where those before it took all."""


def killed_at(
    spec: ServiceSpec, began: float, *, is_finished: bool, deadline: float | None, num_later_orders: int
) -> float:
    """When a service that was asked to end at `began` is killed; all of one clock, in seconds.

    `deadline`: of all services together, where the run was interrupted.
    """
    seconds = spec.stop_seconds
    if is_finished and not spec.unhurried:
        seconds = min(seconds, FINISHED_SECONDS)
    if deadline is None or spec.saves:
        return began + seconds
    share = deadline - SHARE_SECONDS * num_later_orders
    return began + min(seconds, max(share - began, SHARE_SECONDS))
