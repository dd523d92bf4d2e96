"""Turns that a run may still take: jumps after the last point, which nothing in the window
foretells.

Each e-fold of compute brings a turn with the prior's rate. Its size is exponential, mostly up, as
in real runs that had looked settled. The law has no turns. Future readings have them.
"""

import numpy as np

from rollcast.scaling.law.curve import Array
from rollcast.scaling.posterior.prior import Prior


def drawn_turns(prior: Prior, ahead: Array, uniform: Array) -> Array:
    """Jumps (m, d), in pass rate, until `ahead` (m,) times the compute so far, from uniform numbers
    (3, d).
    """
    e_folds = np.maximum(np.log(np.maximum(ahead, 1e-300)), 0.0)
    turned = uniform[0] < -np.expm1(-prior.turn_rate * e_folds)[:, None]
    size = np.where(uniform[1] < prior.turn_up, -prior.turn_scale, prior.turn_scale) * np.log(
        uniform[2]
    )
    return np.asarray(np.where(turned, size, 0.0))
