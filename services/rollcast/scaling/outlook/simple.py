"""Simple methods: what a run reads later if it goes on as its newest readings suggest, without the
law.

smoothed        exponential smoothing; its weight is the one with the least one-step errors on this
                run
last            the newest reading
last_five       mean of the last five
last_tenth      mean of the last tenth, three at least
law_gain        smoothed, and what the law gains from now on (its median)
log_slope       smoothed, and the slope of all readings in ln compute
late_log_slope  smoothed, and the slope of the later half in ln compute
"""

from dataclasses import dataclass

import numpy as np

from rollcast.scaling.law.curve import Array, Curve
from rollcast.scaling.outlook.settings import NUM_LEVEL_READINGS, SMOOTHING


@dataclass(frozen=True)
class Summary:
    """The readings of a run in a few numbers: pass rates, and slopes in pass rate for each e-fold
    of compute.

    Attributes:
        coarse_error: standard error of the mean of three readings of a few answers each; 0 if they
            are not coarse.
    """

    newest_compute: float
    smoothed: float
    last: float
    last_five: float
    last_tenth: float
    log_slope: float
    late_log_slope: float
    coarse_error: float

    @classmethod
    def from_curve(cls, curve: Curve) -> "Summary":
        """The summary of a curve of five readings or more."""
        readings = curve.pass_rate
        log_compute = np.log(curve.compute / curve.compute[-1])
        late = max(5, readings.size // 2)
        smoothed = _smoothed_level(readings)
        return cls(
            newest_compute=float(curve.compute[-1]),
            smoothed=smoothed,
            last=float(readings[-1]),
            last_five=float(readings[-5:].mean()),
            last_tenth=float(readings[-max(3, readings.size // 10) :].mean()),
            log_slope=_slope(log_compute, readings),
            late_log_slope=_slope(log_compute[-late:], readings[-late:]),
            coarse_error=_coarse_error(readings, smoothed),
        )

    def forecasts(self, compute: Array, law_gain: Array) -> Array:
        """Forecast of each method at `compute` (m,) -> (7, m); `law_gain` (m,) is the law's median
        gain until then.
        """
        # 12.0: times the compute so far beyond which the simple methods stay as they are: nothing
        # was learned about more.
        log_ahead = np.log(np.clip(compute / self.newest_compute, 1.0, 12.0))
        ones = np.ones_like(log_ahead)
        return np.stack(
            [
                self.smoothed * ones,
                self.last * ones,
                self.last_five * ones,
                self.last_tenth * ones,
                self.smoothed + law_gain,
                np.clip(self.smoothed + self.log_slope * log_ahead, 0.0, 1.0),
                np.clip(self.smoothed + self.late_log_slope * log_ahead, 0.0, 1.0),
            ]
        )


def _smoothed_level(readings: Array) -> float:
    """The newest value of the exponential smoothing that would have forecast the next readings
    best.
    """
    # 1024: newest readings that are smoothed: older ones have no weight left. Chosen for speed.
    readings = readings[-1024:]
    weights = np.array(SMOOTHING)
    levels = np.full(weights.size, readings[0])
    errors = np.zeros(weights.size)
    first_scored = min(3, readings.size - 1)
    for reading_index, reading in enumerate(readings[1:].tolist(), start=1):
        missed = reading - levels
        if reading_index >= first_scored:
            errors += missed**2
        levels += weights * missed
    return float(levels[np.argmin(errors)])


def _slope(position: Array, readings: Array) -> float:
    """Slope of the straight line through the readings; 0 if all are at one place."""
    centred = position - position.mean()
    squares = float(centred @ centred)
    return float(centred @ readings) / squares if squares > 0.0 else 0.0


def _coarse_error(readings: Array, level: float) -> float:
    """The binomial error of three readings, if all are multiples of a step that few answers make;
    else 0.
    """
    steps = np.diff(np.unique(readings))
    # 64: answers of one reading up to which its step is coarse enough to count: the error of a
    # larger one is in the noise.
    if steps.size == 0 or steps.min() < 1.0 / 64:
        return 0.0
    samples = round(1.0 / float(steps.min()))
    in_steps = readings * samples
    # 0.05: largest distance of a reading from a multiple of the step, in steps: logs round to two
    # or three digits.
    if np.max(np.abs(in_steps - np.rint(in_steps))) > 0.05:
        return 0.0
    # Half an answer of each kind is added: no rate is certainly 0 or 1.
    rate = (level * samples + 0.5) / (samples + 1.0)
    return float(np.sqrt(rate * (1.0 - rate) / (samples * NUM_LEVEL_READINGS)))
