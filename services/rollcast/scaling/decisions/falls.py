"""Whether a run fell, or came to be truncated: verdicts from the readings alone, without the
posterior.
"""

from dataclasses import dataclass

import numpy as np

from rollcast.scaling.decisions.digits import compute_in_words
from rollcast.scaling.decisions.settings import MIN_COLLAPSE, MIN_DECLINES, MIN_LAW_POINTS
from rollcast.scaling.decisions.smoothing import smooth_readings
from rollcast.scaling.decisions.verdict import Verdict, VerdictKind
from rollcast.scaling.law.curve import Array, Curve
from rollcast.scaling.law.settings import ASYMPTOTE_MARGIN

GO_BACK = "Go back to the last checkpoint before it."
"""The remedy for a run that fell; "it" is the peak."""


def judge_fall(curve: Curve, first_phase: float = 0.0, deepest: float = 0.0) -> Verdict | None:
    """The verdict that the run fell: a collapse far outside its noise, or a falling trend from its
    peak on.

    A run that starts above the law falls until its first phase has ended. Such a fall does not
    count if it comes down from the start itself, ends with the first phase and is no deeper than
    first phases are.

    Args:
        curve: the points.
        first_phase: device-hours at which the likeliest first phase ends; 0 for none.
        deepest: largest fall within the first phase that is put down to it, in pass rate.
    """
    fall = _fall(curve)
    if fall is None:
        return None
    if curve.compute[-1] <= first_phase:
        return fall.verdict
    start = curve.pass_rate[0] if curve.initial is None else curve.initial
    from_the_start = fall.peak_rate - start < ASYMPTOTE_MARGIN
    if not from_the_start or fall.peak_compute > first_phase or fall.depth > deepest:
        return fall.verdict
    # The fall from the start is the first phase's; look for another one after its end.
    later_fall = _fall(curve.window(first_phase))
    return None if later_fall is None else later_fall.verdict


@dataclass(frozen=True)
class _Fall:
    """How deep a run fell, from which pass rate, and the device-hours of that peak."""

    depth: float
    peak_rate: float
    peak_compute: float
    verdict: Verdict


def _fall(curve: Curve) -> _Fall | None:
    readings = curve.pass_rate
    if readings.size < MIN_LAW_POINTS:
        return None
    smooth = smooth_readings(readings)
    top = int(np.argmax(smooth.mean))
    peak_rate = float(smooth.mean[top])
    peak_compute = float(curve.compute[min(top + smooth.width // 2, readings.size - 1)])
    where = f"its peak of {peak_rate:.3f} near {compute_in_words(peak_compute, curve.unit)}"

    depth = peak_rate - float(smooth.mean[-1])
    # Without a measured start the lowest mean before the peak takes its place.
    start = float(smooth.mean[: top + 1].min()) if curve.initial is None else curve.initial
    error = smooth.difference_error
    # 6.0: standard errors of the difference of two running means that a collapse must exceed. The
    # peak is the best of many places, so 2 or 3 would be common by chance; chosen, not measured.
    is_deep = depth > max(MIN_COLLAPSE, 6.0 * error)
    # 0.25: share of the rise from start to peak that a collapse must undo; chosen, not measured.
    if is_deep and depth > 0.25 * (peak_rate - start):
        reason = (
            f"The pass rate fell by {depth:.3f} from {where}, {depth / error:.0f} standard errors. "
            f"{GO_BACK}"
        )
        return _Fall(
            depth, peak_rate, peak_compute, Verdict(VerdictKind.BROKEN, reason, peak_compute)
        )

    decline, significance = _decline(readings[top:], smooth.noise)
    if any(decline > min_decline and significance > errors for min_decline, errors in MIN_DECLINES):
        reason = (
            f"The pass rate has declined by {decline:.3f} since {where}, {significance:.1f} "
            f"standard errors. {GO_BACK}"
        )
        return _Fall(
            decline, peak_rate, peak_compute, Verdict(VerdictKind.BROKEN, reason, peak_compute)
        )
    return None


def _decline(readings: Array, noise: float) -> tuple[float, float]:
    """Decline along the straight line through the readings, and its size in standard errors; 0 for
    fewer than 5.

    The scatter about the line is at least `noise`: a few points after a lucky peak may fall in line
    by chance.
    """
    if readings.size < MIN_LAW_POINTS:
        return 0.0, 0.0
    position = np.arange(readings.size) - (readings.size - 1) / 2.0
    slope = float(position @ readings) / float(position @ position)
    residual = readings - readings.mean() - slope * position
    scatter = max(float(np.sqrt(residual @ residual / (readings.size - 2))), noise)
    return -slope * (readings.size - 1), -slope * float(np.sqrt(position @ position)) / scatter


def judge_truncation(curve: Curve) -> Verdict | None:
    """The verdict that answers are now truncated: above 10 % such runs turn unstable and do not
    recover (A.15).
    """
    ratio = curve.truncation_ratio
    if ratio is None or ratio.size < MIN_LAW_POINTS:
        return None
    width = max(3, ratio.size // 20)
    recent_ratio = float(np.median(ratio[-width:]))
    earlier_ratio = float(np.median(ratio[: max(ratio.size // 2, 1)]))
    # 2.0: times the truncation of the first half: a run that was always truncated this often has
    # not changed.
    # Share of truncated answers from which runs of the paper's batch size turned unstable (A.15).
    unstable_truncation_ratio = 0.10
    if recent_ratio < unstable_truncation_ratio or recent_ratio < 2.0 * earlier_ratio:
        return None
    stable = np.flatnonzero(ratio < unstable_truncation_ratio)
    first_unstable = 0 if stable.size == 0 else int(stable[-1]) + 1
    since = curve.compute[min(first_unstable, ratio.size - 1)]
    return Verdict(
        VerdictKind.REGIME_CHANGE,
        f"{recent_ratio:.0%} of the answers are truncated, {earlier_ratio:.0%} in the first half "
        f"(above {unstable_truncation_ratio:.0%} near {since:.4g} {curve.unit}); "
        "such runs turn unstable and do not recover unaided.",
    )
