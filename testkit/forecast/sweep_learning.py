"""The prior of sweeps under which the curves of some families are likeliest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from scipy.optimize import minimize

from rollcast.cli.corpus.curves import CorpusCurve
from rollcast.scaling.law.curve import Array
from rollcast.scaling.sweep.belief import adjust, log_likelihood
from rollcast.scaling.sweep.prior import SweepPrior
from rollcast.scaling.sweep.state import BinnedReadings, SweepRun, SweepState, bin_readings

START = {
    "time_scale": 0.3,
    "common_level": 0.2,
    "common_path": 0.15,
    "common_trend": 0.1,
    "arm_level": 0.1,
    "arm_path": 0.2,
    "arm_trend": 0.03,
    "reading": 0.06,
}
"""Towards which the numbers are shrunk, with a standard deviation of 1.5 in their logarithms."""
LOG_SCALE, LOG_READING = 0.6, 0.8
"""How much families differ, until it is known."""
OFFSETS = np.linspace(-1.5, 1.5, 7)
"""Logarithms of the scale and scatter of one family that are tried."""


@dataclass(frozen=True, eq=False)
class Family:
    """Runs of one experiment, cut at a compute that all of them reach."""

    repository: str
    readings: BinnedReadings
    arms: np.ndarray
    """(r,) the arm of each run: every curve counts as an arm of its own."""


def make_families(curves: Sequence[CorpusCurve]) -> list[Family]:
    """Three curves or more of one repository, metric and task are a family.

    Curves that end before 80 % of the median length are left out, and all are cut at the shortest
    end that remains. Ten curves at most, so that one family does not take all the time.
    """
    groups = defaultdict(list)
    for curve in curves:
        if not curve.is_scaled_by_own_range and len(curve) >= 10:
            groups[curve.repository, curve.metric, curve.task].append(curve)
    families = []
    for (repository, _, _), members in sorted(groups.items()):
        lengths = sorted(float(curve.x[-1]) for curve in members)
        long = [curve for curve in members if curve.x[-1] >= 0.8 * lengths[len(lengths) // 2]]
        end = min(float(curve.x[-1]) for curve in long)
        cut = [curve for curve in long if (curve.x <= end).sum() >= 8]
        if len(cut) >= 3:
            runs = [_run(index, curve, end) for index, curve in enumerate(cut[:10])]
            readings = bin_readings(SweepState(runs, end, 0.0))
            families.append(Family(repository, readings, np.arange(len(runs))))
    return families


def _run(index: int, curve: CorpusCurve, end: float) -> SweepRun:
    errors = [None if np.isnan(error) else float(error) for error in curve.standard_error]
    readings = zip(curve.x.tolist(), curve.y.tolist(), errors, strict=True)
    return SweepRun(str(index), 1.0, [reading for reading in readings if reading[0] <= end])


def learn_sweep_prior(families: Sequence[Family]) -> SweepPrior:
    """The numbers by maximum likelihood; one repository has one vote, shared by its families.

    In turns: the numbers given each family's own scale and scatter, then those given the numbers.
    """
    count = Counter(family.repository for family in families)
    votes = np.array([1.0 / count[family.repository] for family in families])
    start = np.log(list(START.values()))
    logs, own, log_scale, log_reading = start, [(0.0, 0.0)] * len(families), LOG_SCALE, LOG_READING
    for _ in range(3):

        def loss(logs: Array, own: list[tuple[float, float]] = own) -> float:
            prior = _prior(logs, log_scale=LOG_SCALE, log_reading=LOG_READING)
            # Likelihoods of a hundred readings each: a family with more has no greater vote.
            gains = [
                100.0 * vote * _fit(prior, family, offsets) / len(family.readings.run)
                for vote, family, offsets in zip(votes, families, own, strict=True)
            ]
            return float(0.5 * np.sum(((logs - start) / 1.5) ** 2) - sum(gains))

        bounds = [(centre - 2.5, centre + 2.0) for centre in start]
        options = {"maxiter": 12, "eps": 1e-3}
        logs = minimize(loss, logs, method="L-BFGS-B", bounds=bounds, options=options).x
        prior = _prior(logs, log_scale=log_scale, log_reading=log_reading)
        own = [_own_offsets(prior, family) for family in families]
        log_scale, log_reading = _spread(np.array(own), votes)
    learned = _prior(logs, log_scale=log_scale, log_reading=log_reading)
    return SweepPrior(**{name: round(value, 4) for name, value in asdict(learned).items()})


def _prior(logs: Array, *, log_scale: float, log_reading: float) -> SweepPrior:
    numbers = {name: float(np.exp(log)) for name, log in zip(START, logs, strict=True)}
    return SweepPrior(**numbers, log_scale=log_scale, log_reading=log_reading)


def _fit(prior: SweepPrior, family: Family, offsets: tuple[float, float]) -> float:
    return log_likelihood(adjust(prior, *offsets), family.readings, family.arms)


def _own_offsets(prior: SweepPrior, family: Family) -> tuple[float, float]:
    """The likeliest scale and scatter of one family."""

    def fit(offsets: tuple[float, float]) -> float:
        scale, scatter = offsets[0] / prior.log_scale, offsets[1] / prior.log_reading
        return _fit(prior, family, offsets) - 0.5 * (scale**2 + scatter**2)

    return max(((float(a), float(b)) for a in OFFSETS for b in OFFSETS), key=fit)


def _spread(own: Array, votes: Array) -> tuple[float, float]:
    """Standard deviations of the families' offsets, as if two more had been seen .3 away."""
    centred = own - votes @ own / votes.sum()
    log_scale, log_reading = np.sqrt((votes @ centred**2 + 2 * 0.3**2) / (votes.sum() + 2))
    return float(log_scale), float(log_reading)
