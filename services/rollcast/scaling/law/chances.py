"""The chance of each candidate to be the best, by draws of all of them."""

import numpy as np

from rollcast.scaling.law.curve import Array


def best_chances(values: Array) -> Array:
    """(n,) share of the draws in which each candidate has the highest of `values` (n, d)."""
    return np.asarray(np.bincount(values.argmax(axis=0), minlength=len(values)) / values.shape[1])
