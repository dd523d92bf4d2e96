"""How long each service of a run may take to end, once all of them are to.

finished work that no one waits for has a few seconds, reports to others their own limit
given up      each has its own limit
interrupted   all of them together have one deadline, of which each order leaves a share to the later ones; whoever
              saves what would be lost has its own limit beyond that
"""

from rollcast.local.process import ServiceSpec

FINISHED_SECONDS = 5.0
"""Limit for unfinished work once the run is finished."""
SHARE_SECONDS = 2.0
"""Share of an interrupt's deadline for each later order, and the least time of an order whose predecessors used all."""


def killed_at(
    spec: ServiceSpec, began: float, *, is_finished: bool, deadline: float | None, num_later_orders: int
) -> float:
    """When a service that was asked to end at `began` is killed; all of one clock, in seconds.

    `deadline`: of all services together, if the run was interrupted.
    """
    seconds = spec.stop_seconds
    if is_finished and not spec.unhurried:
        seconds = min(seconds, FINISHED_SECONDS)
    if deadline is None or spec.saves:
        return began + seconds
    share = deadline - SHARE_SECONDS * num_later_orders
    return began + min(seconds, max(share - began, SHARE_SECONDS))
