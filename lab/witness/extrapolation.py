"""Extrapolation of weights: RELEX, arXiv 2605.21468."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Weights = dict[str, NDArray[np.float32]]


def extrapolated(base: Weights, history: list[Weights], at: Array, target: float) -> Weights:
    """The weights at `target`.

    The changes of each tensor since the start are reduced to their first singular direction, which
    is not centred, and the coefficient along it is continued by a straight line.

    Args:
        base: at the start.
        history: later ones.
        at: (n,) the clock of each of them.
        target: the clock of the end.
    """
    result: Weights = {}
    design = np.stack([np.ones_like(at), at], axis=1)
    for name, start in base.items():
        changes = np.stack([(weights[name] - start).ravel() for weights in history]).astype(
            np.float64
        )
        left, sizes, right = np.linalg.svd(changes, full_matrices=False)
        intercept, slope = np.linalg.lstsq(design, left[:, 0] * sizes[0], rcond=None)[0]
        change = (intercept + slope * target) * right[0]
        result[name] = (start + change.reshape(start.shape)).astype(np.float32)
    return result
