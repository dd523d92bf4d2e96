"""What kind of curve this is, in one word and one sentence.

    too_early       the curve has not bent: what the same compute again would bring is not known to any use
    forecastable    the bend is behind, and the pass rate at twice the compute is known well enough to decide on
    saturated       what is left to gain, and to gain on the last reading, is within the margin on A, turns included
    not_sigmoid     the pass rate fell for good: a collapse or a decline
    regime_change   the curve jumped up, or began to climb anew

The last two are a comparison of evidences: the law with a break against the law without, both under every noise of the
grid, drift included. A run that merely wanders is therefore not called broken. Where a break could lie is found first
by plain least squares; most curves show none and cost nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.special import expit

from rollcast.scaling.curve import DEVICE_HOURS, MARGIN, Array, Curve
from rollcast.scaling.departure import FIRST_BREAK, Departure, break_shapes
from rollcast.scaling.digits import difference
from rollcast.scaling.draws import Draws
from rollcast.scaling.grid import Grid
from rollcast.scaling.observations import LEAST_ERROR, MEDIAN_TO_DEVIATION, Observations
from rollcast.scaling.prior import Prior
from rollcast.scaling.turns import chance_of_rise

LEAST_BREAK = 0.03
"""Breaks smaller than this are left to the drift."""
AHEAD = 2.0
"""Times the compute so far at which a run must be foreseen to decide on it."""
MAX_WIDTH = 0.15
"""Widest 90 % interval of the pass rate there that is called known."""
PAST_BEND = 1.5
"""Multiple of C_mid that the window must have reached before an asymptote counts as seen: a bend that the window only
touches is told from the first phase, and B from C_mid, by the prior alone, and A then tends to come out too low."""
LIKELY_PASSED = 0.6
"""Posterior probability from which the bend counts as passed: a run that has not risen yet may rise any day."""
SURE = 0.95
"""Posterior probability that the bend is passed, and of the bound of what is left, from which a run is saturated."""
NOTABLE_SHAPE = 0.05
"""Posterior weight from which a shape has a say in whether a run is saturated."""
MAY_GAIN = 0.03
"""Probability at most that a saturated run gains the margin after all: people stop runs on that word, and one in thirty
may be stopped wrongly. Turns count. With the default prior they alone bring 6 % until twice the compute, so a run is
saturated only near a pass rate of 1, where there is nothing to turn to."""
UNSTABLE_TRUNCATION = 0.10
"""Share of truncated answers from which runs of this batch size turned unstable (A.15 of arXiv 2510.13786)."""
LEAST_POINTS = 5
"""One more than the law has parameters."""
LEAST_LOG_ODDS = 4.6
"""ln of the evidence ratio at which a break is called, a hundred to one: its place was the best of dozens, and twenty
to one comes about by chance in one healthy run of a hundred."""
LEAST_IMPROVEMENT = 10.0
"""Gain in n ln(sum of squares) from which a break is looked into."""
LIKELY = 0.1
"""Posterior weight from which a first phase may explain residuals before a break does."""
LEAST_SUSPECTED = 0.5 * MARGIN
"""Least size of a break that is looked into, in pass rate."""
DEEP = 0.05
"""A fall in pass rate that is one at once, where noise alone does not make it and it undoes much of the rise."""
FALL_ERRORS = 6.0
"""Standard errors of the difference of two running means that such a fall must exceed."""
UNDONE = 0.25
"""Share of the rise from the start to the peak that such a fall must undo."""
DECLINES = ((LEAST_BREAK, 3.0), (DEEP, 2.5))
"""A slow decline: its least size in pass rate, and in standard errors of the trend. A deeper one needs fewer."""
BELOW_PEAK_ERRORS = 2.0
"""Standard errors below the peak at which a fall from there is tried as a break."""
RISEN = 2.0
"""Times the truncation of the first half: a run that was always cut off so often has not changed."""
LN_2 = 0.6931471805599453
"""Jump and slide are equally likely beforehand: each has the log prior -ln 2."""


class VerdictKind(StrEnum):
    """The five kinds."""

    TOO_EARLY = "too_early"
    FORECASTABLE = "forecastable"
    SATURATED = "saturated"
    NOT_SIGMOID = "not_sigmoid"
    REGIME_CHANGE = "regime_change"

    @property
    def is_described(self) -> bool:
        """Whether the law describes the curve: only then do its constants and its gains mean something."""
        return self not in (VerdictKind.NOT_SIGMOID, VerdictKind.REGIME_CHANGE)

    @property
    def is_decidable(self) -> bool:
        """Whether the numbers are for decisions."""
        return self in (VerdictKind.FORECASTABLE, VerdictKind.SATURATED)


@dataclass(frozen=True)
class Verdict:
    """A kind, and the reason in words: what it is, and in one more sentence what it rests on."""

    kind: VerdictKind
    reason: str


def judge(curve: Curve, draws: Draws, prior: Prior) -> Verdict:
    """The verdict on a curve that does not break. `prior`: how likely turns are that no window shows."""
    count, last = len(curve), float(curve.compute[-1])
    if count < LEAST_POINTS:
        made = "1 evaluation" if count == 1 else f"{count} evaluations"
        return Verdict(VerdictKind.TOO_EARLY, f"Only {made}; the law needs {LEAST_POINTS} or more.")
    now, later = draws.law([last, AHEAD * last])
    low, high = (float(v) for v in np.quantile(later, [0.05, 0.95]))
    left = _left(draws, now, later)
    if left >= MARGIN and high - low > MAX_WIDTH:
        return Verdict(
            VerdictKind.TOO_EARLY,
            f"The curve has not bent enough: at {AHEAD:g} times the compute the pass rate could be anywhere from "
            f"{low:.2f} to {high:.2f} (90 %).",
        )
    passed = _bend_passed(last, draws)
    at_the_ceiling = 1.0 - float(np.quantile(now, 0.05)) < MARGIN
    if passed < LIKELY_PASSED and not at_the_ceiling:
        return Verdict(
            VerdictKind.TOO_EARLY,
            f"The bend is not clearly behind: the run has reached {PAST_BEND:g} C_mid with a probability of "
            f"{np.floor(100 * passed):.0f} %, less than {100 * LIKELY_PASSED:g} %; until then a pass rate from "
            f"{low:.2f} to {high:.2f} (90 %) at {AHEAD:g} times the compute rests on what other runs do.",
        )
    later_range = f"At {AHEAD:g} times the compute the pass rate lies between {low:.3f} and {high:.3f} (90 %)."
    reading = float(curve.pass_rate[-1])
    at_most = max(left, _left_under_every_shape(draws, now, later))
    if at_most >= MARGIN or high - reading >= MARGIN or (passed < SURE and not at_the_ceiling):
        return Verdict(VerdictKind.FORECASTABLE, later_range)
    chance = _chance_of_gain(draws, prior, now, later, reading)
    if chance > MAY_GAIN:
        return Verdict(
            VerdictKind.FORECASTABLE,
            f"{later_range} On the curve, which alone the advice counts, at most {difference(at_most)} is left to gain "
            f"(95 %). With turns, as settled runs sometimes take, it is {MARGIN:g} or more until then with a "
            f"probability of {chance:.0%}.",
        )
    return Verdict(
        VerdictKind.SATURATED,
        f"At most {difference(at_most)} is left to gain (95 % bound under every shape with weight), "
        f"less than the margin of {MARGIN:g} on the asymptote.",
    )


def _gains_left(draws: Draws, now: Array, later: Array) -> Array:
    """(d,) what is left: to the asymptote, or where a tail goes on to twice the compute."""
    return np.where(draws.tail == 0.0, draws.asymptote - now, later - now)


def _left(draws: Draws, now: Array, later: Array) -> float:
    """95 % bound of what is left on the curve."""
    return max(float(np.quantile(_gains_left(draws, now, later), SURE)), 0.0)


def _left_under_every_shape(draws: Draws, now: Array, later: Array) -> float:
    """The largest of these bounds of the law, of rising tails and of falling ones, as far as each has weight."""
    signs = np.sign(draws.tail)
    shapes = [np.flatnonzero(signs == sign) for sign in (-1.0, 0.0, 1.0) if np.mean(signs == sign) >= NOTABLE_SHAPE]
    return max(_left(draws[shape], now[shape], later[shape]) for shape in shapes)


def _chance_of_gain(draws: Draws, prior: Prior, now: Array, later: Array, reading: float) -> float:
    """That curve and turns together gain the margin, on the law now or on the last reading; none goes beyond 1."""
    lacking_on_law = np.where(now <= 1.0 - MARGIN, MARGIN - _gains_left(draws, now, later), np.inf)
    lacking_on_reading = MARGIN - (later - reading) if reading <= 1.0 - MARGIN else np.inf
    lacking = np.minimum(lacking_on_law, lacking_on_reading)
    return float(np.mean(np.where(lacking <= 0.0, 1.0, chance_of_rise(prior, AHEAD, lacking))))


def _bend_passed(last: float, draws: Draws) -> float:
    """Probability that `last` lies beyond `PAST_BEND` C_mid."""
    return float(np.mean(draws.log_midpoint < np.log(last / PAST_BEND)))


def judge_break(plain: Grid, broken: Grid, observations: Observations, unit: str = DEVICE_HOURS) -> Verdict | None:
    """The verdict that the run broke, or None if the law alone explains it as well. `unit`: of compute."""
    log_odds = broken.log_evidence - plain.log_evidence
    if log_odds < LEAST_LOG_ODDS:
        return None
    departure, amplitude = _amplitude(broken, observations)
    if abs(amplitude) < LEAST_BREAK:
        return None
    where = f"from {departure.at:.4g} {unit} on"
    odds = f"The odds of a break there are {_odds(log_odds)} to 1."
    if amplitude < 0:
        return Verdict(
            VerdictKind.NOT_SIGMOID,
            f"The pass rate lies {-amplitude:.3f} below the law {where}; the law only rises. {odds}",
        )
    return Verdict(
        VerdictKind.REGIME_CHANGE,
        f"The pass rate lies {amplitude:.3f} above the law {where}; no one sigmoid fits both parts. {odds}",
    )


def _odds(log_odds: float) -> str:
    """Beyond a million the noise's own prior speaks, not the readings."""
    return "over a million" if log_odds > np.log(1e6) else f"{np.exp(log_odds):,.0f}"


def suspected_breaks(observations: Observations, grid: Grid, prior: Prior) -> list[Departure]:
    """The jump and the slide that least squares wants most on top of the best law, if it wants them at all.

    Residuals of the best law are projected on each break. Before that they lose what something else could explain: a
    small change of the law's four parameters, or a likely first phase (the Frisch-Waugh theorem).
    """
    best = grid.best()
    count = observations.log_compute.size
    compute = np.exp(observations.log_compute)
    measured = np.isfinite(observations.log_compute)
    if count < LEAST_POINTS + 2:
        return []
    root = np.sqrt(observations.precision)
    rise = best.rise(compute)
    bend = rise * (1.0 - rise)
    distance = np.where(measured, observations.log_compute - np.log(best.midpoint), 0.0)
    likely = grid.weight.sum(axis=(1, 2, 3)) > LIKELY
    kept = [d for d, keep in zip(grid.axes.departures, likely, strict=True) if keep]
    phases = [d.shape for d in kept if d.shape is not None] + [d.tail.shape for d in kept if d.tail is not None]
    tangent, _ = np.linalg.qr(root[:, None] * np.stack([1.0 - rise, rise, bend, bend * distance, *phases], axis=1))
    residual = root * (observations.pass_rate - best.pass_rate(compute))
    residual = residual - tangent @ (tangent.T @ residual)
    total = float(residual @ residual)
    top = _peak(observations)
    found = []
    for shapes in break_shapes(compute):
        phi = root * shapes
        phi = phi - (phi @ tangent) @ tangent.T
        free = np.sum(phi * phi, axis=1)
        along = np.where(free > 1e-9, phi @ residual, 0.0)
        explained = along**2 / np.maximum(free, 1e-9)
        index = int(np.argmax(explained))
        improvement = -count * float(np.log1p(-min(float(explained[index]) / max(total, 1e-12), 1.0 - 1e-9)))
        if improvement > LEAST_IMPROVEMENT and abs(along[index]) > LEAST_SUSPECTED * free[index]:
            found.append(Departure(shapes[index], prior.break_scale, -LN_2, float(compute[FIRST_BREAK + index])))
        if top is not None:
            found.append(Departure(shapes[top], prior.break_scale, -LN_2, float(compute[FIRST_BREAK + top])))
    return found


def judge_fall(curve: Curve, first_phase: float = 0.0, deepest: float = 0.0) -> Verdict | None:
    """The verdict that the run fell: a collapse far outside its noise, or a falling trend from its peak on.

    A run that starts above the law falls until its first phase has ended. Such a fall is none if it comes down from the
    start itself, ends with the first phase and is no deeper than first phases are.

    Args:
        curve: the points.
        first_phase: device-hours at which the likeliest first phase ends; 0 for none.
        deepest: largest fall within the first phase that is put down to it, in pass rate.
    """
    found = _fall(curve)
    if found is None or curve.compute[-1] <= first_phase:
        return None if found is None else found.verdict
    from_the_start = found.peak - (curve.pass_rate[0] if curve.initial is None else curve.initial) < MARGIN
    if not from_the_start or found.at > first_phase or found.depth > deepest:
        return found.verdict
    beyond = _fall(curve.window(first_phase))
    return None if beyond is None else beyond.verdict


@dataclass(frozen=True)
class _Fall:
    """How deep a run fell, from which pass rate, and the device-hours of that peak."""

    depth: float
    peak: float
    at: float
    verdict: Verdict


def _fall(curve: Curve) -> _Fall | None:
    y = curve.pass_rate
    if y.size < LEAST_POINTS:
        return None
    smooth, width, noise = _smooth(y)
    top = int(np.argmax(smooth))
    peak, at = float(smooth[top]), float(curve.compute[min(top + width // 2, y.size - 1)])
    where = f"its peak of {peak:.3f} near {at:.4g} {curve.unit}; the law only rises."
    depth = peak - float(smooth[-1])
    start = float(smooth[: top + 1].min()) if curve.initial is None else curve.initial
    error = noise * float(np.sqrt(2.0 / width))
    if depth > max(DEEP, FALL_ERRORS * error) and depth > UNDONE * (peak - start):
        reason = f"The pass rate fell by {depth:.3f} from {where} That is {depth / error:.0f} standard errors."
        return _Fall(depth, peak, at, Verdict(VerdictKind.NOT_SIGMOID, reason))
    decline, significance = _trend(y[top:], noise)
    if any(decline > least and significance > errors for least, errors in DECLINES):
        reason = (
            f"The pass rate has declined by {decline:.3f} since {where} That is {significance:.1f} standard errors."
        )
        return _Fall(decline, peak, at, Verdict(VerdictKind.NOT_SIGMOID, reason))
    return None


def judge_truncation(curve: Curve) -> Verdict | None:
    """The verdict that answers came to be cut off: above 10 % such runs turn unstable and do not recover (A.15)."""
    ratio = curve.truncation_ratio
    if ratio is None or ratio.size < LEAST_POINTS:
        return None
    width = max(3, ratio.size // 20)
    now = float(np.median(ratio[-width:]))
    before = float(np.median(ratio[: max(ratio.size // 2, 1)]))
    if now < UNSTABLE_TRUNCATION or now < RISEN * before:
        return None
    since = int(np.flatnonzero(ratio < UNSTABLE_TRUNCATION)[-1]) + 1 if np.any(ratio < UNSTABLE_TRUNCATION) else 0
    return Verdict(
        VerdictKind.REGIME_CHANGE,
        f"{now:.0%} of the answers are truncated, {before:.0%} in the first half "
        f"(above {UNSTABLE_TRUNCATION:.0%} near {curve.compute[min(since, ratio.size - 1)]:.4g} {curve.unit}); "
        "such runs turn unstable and do not recover unaided.",
    )


def _trend(y: Array, noise: float) -> tuple[float, float]:
    """Decline along the straight line through y and its size in standard errors; 0 for fewer than 5 points.

    The scatter about the line is at least `noise`: a few points after a lucky peak may fall in line by chance.
    """
    if y.size < LEAST_POINTS:
        return 0.0, 0.0
    position = np.arange(y.size) - (y.size - 1) / 2.0
    slope = float(position @ y) / float(position @ position)
    residual = y - y.mean() - slope * position
    scatter = max(float(np.sqrt(residual @ residual / (y.size - 2))), noise)
    return -slope * (y.size - 1), -slope * float(np.sqrt(position @ position)) / scatter


def _peak(observations: Observations) -> int | None:
    """The break that follows the highest stretch, if the last points lie clearly below that; as in `break_shapes`."""
    smooth, width, noise = _smooth(observations.pass_rate)
    top = int(np.argmax(smooth))
    if smooth[top] - smooth[-1] < max(MARGIN, BELOW_PEAK_ERRORS * noise * np.sqrt(2.0 / width)):
        return None
    return min(max(top + width - FIRST_BREAK, 0), observations.pass_rate.size - 2 - FIRST_BREAK)


def _smooth(y: Array) -> tuple[Array, int, float]:
    """Running mean, its width, and the noise of one point from the differences of successive ones."""
    width = max(2, y.size // 10)
    noise = max(MEDIAN_TO_DEVIATION * float(np.median(np.abs(np.diff(y)))) / float(np.sqrt(2.0)), LEAST_ERROR)
    return window_sums(y, width) / width, width, noise


def window_sums(y: Array, width: int) -> Array:
    """(n,) -> (n - width + 1,) sums of `width` neighbours, in n log(width) steps.

    Each is made of the same additions wherever it stands, so that equal neighbourhoods have equal sums: a running total
    would make a peak out of its rounding.
    """
    total, offset = np.zeros(y.size - width + 1), 0
    power, of_power = y, 1
    while of_power <= width:
        if width & of_power:
            total = total + power[offset : offset + total.size]
            offset += of_power
        power, of_power = power[:-of_power] + power[of_power:], 2 * of_power
    return total


def _amplitude(grid: Grid, observations: Observations) -> tuple[Departure, float]:
    """The likeliest departure and the mean of its amplitude at the likeliest node."""
    likeliest = np.argmax(grid.weight)
    index, noise, row, column = np.unravel_index(int(likeliest), grid.weight.shape)
    departure = grid.axes.departures[index]
    assert departure.shape is not None
    exponent, midpoint = np.exp(grid.axes.log_exponent[row]), grid.axes.log_midpoint[row, column]
    rise = expit(exponent * (observations.log_compute - midpoint))
    given = grid.conditional(np.asarray(likeliest))
    law = given.initial + (given.asymptote - given.initial) * rise
    phi: Array = observations.rotation @ departure.shape
    residual = observations.rotation @ (observations.pass_rate - law)
    precision = np.exp(-2.0 * grid.axes.noise[noise]) / (1.0 + grid.axes.drift[noise] ** 2 * observations.eigenvalues)
    weighted = phi * precision
    return departure, float(weighted @ residual / (1.0 / departure.scale**2 + weighted @ phi))
