"""The forecast that nothing changes, for contrast."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rollcast.scaling.law.curve import Array, Curve


@dataclass(frozen=True)
class LastValue:
    """The last pass rate, at any compute."""

    value: float

    def pass_rate(self, compute: ArrayLike) -> Array:
        """(m,) -> (m,)."""
        return np.full(np.shape(compute), self.value)


def last_value(curve: Curve) -> LastValue:
    """The last reading of the curve."""
    return LastValue(float(curve.pass_rate[-1]))
