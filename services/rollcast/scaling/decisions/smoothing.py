"""Running means of readings, and the noise of a single one."""

from typing import NamedTuple

import numpy as np

from rollcast.scaling.law.curve import Array
from rollcast.scaling.law.settings import MIN_STANDARD_ERROR, STD_PER_MEDIAN_DEVIATION


class Smoothed(NamedTuple):
    """Running means of readings (n,).

    Attributes:
        mean: (n - width + 1,)
        width: readings in each mean.
        noise: standard deviation of one reading, from the differences of successive ones.
    """

    mean: Array
    width: int
    noise: float

    @property
    def difference_error(self) -> float:
        """Standard error of the difference of two means that share no reading."""
        return self.noise * float(np.sqrt(2.0 / self.width))


def smooth_readings(readings: Array) -> Smoothed:
    """Running means over a tenth of the readings, over two at least."""
    width = max(2, readings.size // 10)
    typical_step = float(np.median(np.abs(np.diff(readings))))
    # A difference of two independent readings has twice the variance of one.
    noise = STD_PER_MEDIAN_DEVIATION * typical_step / float(np.sqrt(2.0))
    return Smoothed(window_sums(readings, width) / width, width, max(noise, MIN_STANDARD_ERROR))


def window_sums(y: Array, width: int) -> Array:
    """(n,) -> (n - width + 1,) sums of `width` neighbours, in n log(width) steps.

    Every sum is made by the same additions, so that equal neighbourhoods have equal sums: a running
    total would turn its rounding into a peak.
    """
    sums = np.zeros(y.size - width + 1)
    # `block_sums` holds the sums of 1, 2, 4, .. neighbours; those of the binary digits of `width`
    # make up each of `sums`.
    offset = 0
    block_sums = y
    block_width = 1
    while block_width <= width:
        if width & block_width:
            sums = sums + block_sums[offset : offset + sums.size]
            offset += block_width
        block_sums = block_sums[:-block_width] + block_sums[block_width:]
        block_width *= 2
    return sums
