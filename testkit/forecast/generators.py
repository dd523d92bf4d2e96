"""Simulated runs: three kinds of noise around the law, and six shapes for the verdicts.

Fixed before the fitter was tuned; a change here makes older results incomparable. Every run has a
measured start, a standard error for each point (as the system reports it) and C_mid somewhere
between 10 and 10,000 device-hours. The window ends at a given multiple of C_mid, with 15 to 100
evaluations evenly spaced in compute.

    law      white Gaussian noise of the reported standard error
    heavy    Student t noise with 4 degrees of freedom, 0.4-0.9 of the reported standard error (the
             same prompts every time: their share is an offset of the whole curve, which belongs to
             the curve), and a drift with the correlation time 0.3 in ln compute, 0.2-0.8 of the
             standard error
    early    noise as in `law`, and a first phase that the law does not describe: the pass rate
             starts 0.02-0.08 above or below it and joins it linearly at 0.05-0.2 C_mid

The truth to be forecast is always the law.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rollcast.scaling.law.curve import Array, Curve, SigmoidParameters

GENERATORS = ("law", "heavy", "early")
WINDOWS = (0.3, 1.0, 3.0, 10.0)
"""Last compute of the window over C_mid."""
SHAPES = ("good", "collapse", "decline", "regime_change", "flat", "saturated")


@dataclass(frozen=True, eq=False)
class SimulatedRun:
    """A curve and what made it; `white` and `drift` are the true standard deviations of its
    residuals.
    """

    curve: Curve
    truth: SigmoidParameters
    window: float
    white: float
    drift: float


def simulate(generator: str, window: float, rng: np.random.Generator) -> SimulatedRun:
    """One run of `generator`, seen until `window` times C_mid."""
    truth = _draw_law(rng)
    count = int(rng.integers(15, 101))
    compute = window * truth.midpoint * np.arange(1, count + 1) / count
    error = float(np.exp(rng.uniform(np.log(0.003), np.log(0.02))))
    law = truth.pass_rate(compute)
    start = truth.initial
    white, drift = error, 0.0
    match generator:
        case "law":
            residual = error * rng.standard_normal(count)
        case "heavy":
            white, drift = error * rng.uniform(0.4, 0.9), error * rng.uniform(0.2, 0.8)
            residual = white * rng.standard_t(4, count) / np.sqrt(2.0) + drift * _drift(
                np.log(compute), 0.3, rng
            )
        case "early":
            join = truth.midpoint * rng.uniform(0.05, 0.2)
            offset = float(rng.choice([-1, 1])) * rng.uniform(0.02, 0.08)
            residual = error * rng.standard_normal(count) + offset * np.maximum(
                1 - compute / join, 0.0
            )
            start += offset
        case _:
            raise ValueError(f"generator: {generator!r} is none of {GENERATORS}.")
    curve = Curve.from_points(
        compute,
        np.clip(law + residual, 0, 1),
        np.full(count, error),
        initial=float(np.clip(start + error * rng.standard_normal(), 0, 1)),
        initial_standard_error=error,
    )
    return SimulatedRun(curve, truth, window, float(white), float(drift))


def simulate_shape(shape: str, rng: np.random.Generator) -> Curve:
    """One run of a known shape, its noise heavy-tailed as in `heavy`, its standard errors given."""
    truth = _draw_law(rng)
    count = int(rng.integers(25, 101))
    window = rng.uniform(2, 8)
    if shape == "saturated":  # less than 0.008 is left at the end
        gain = truth.asymptote - truth.initial
        window = rng.uniform(1, 3) * (gain / 0.008 - 1) ** (1 / truth.exponent)
    compute = window * truth.midpoint * np.arange(1, count + 1) / count
    law = truth.pass_rate(compute)
    progress = compute / compute[-1]
    gain = truth.asymptote - truth.initial
    match shape:
        case "good":
            clean = law
        case "collapse":  # most of the gain is lost within a twentieth of the run
            at = rng.uniform(0.4, 0.85)
            lost = rng.uniform(0.5, 1.0) * (
                law[np.searchsorted(progress, at)] - 0.5 * truth.initial
            )
            clean = law - lost * np.clip((progress - at) / 0.05, 0, 1)
        case "decline":  # a third to all of the gain is lost slowly
            at = rng.uniform(0.3, 0.6)
            clean = law - rng.uniform(0.33, 1.0) * gain * np.clip((progress - at) / (1 - at), 0, 1)
        case "regime_change":  # a jump: the data, the recipe or the context length was changed
            at = rng.uniform(0.35, 0.75)
            step = rng.uniform(0.08, 0.2)
            clean = law + np.where(progress >= at, min(step, 0.98 - truth.asymptote), 0.0)
        case "flat":  # nothing is learned
            clean = np.full(count, truth.initial)
        case "saturated":
            clean = law
        case _:
            raise ValueError(f"shape: {shape!r} is none of {SHAPES}.")
    error = float(np.exp(rng.uniform(np.log(0.003), np.log(0.015))))
    white, drift = error * rng.uniform(0.4, 0.9), error * rng.uniform(0.2, 0.8)
    residual = white * rng.standard_t(4, count) / np.sqrt(2.0) + drift * _drift(
        np.log(compute), 0.3, rng
    )
    return Curve.from_points(
        compute,
        np.clip(clean + residual, 0, 1),
        np.full(count, error),
        initial=truth.initial,
        initial_standard_error=error,
    )


def _draw_law(rng: np.random.Generator) -> SigmoidParameters:
    asymptote = rng.uniform(0.35, 0.9)
    return SigmoidParameters(
        initial=asymptote * rng.uniform(0.1, 0.75),
        asymptote=asymptote,
        exponent=float(np.exp(0.55 + 0.4 * rng.standard_normal())),
        midpoint=float(10 ** rng.uniform(1, 4)),
    )


def _drift(log_compute: Array, length: float, rng: np.random.Generator) -> Array:
    """Ornstein-Uhlenbeck path of unit variance."""
    path = np.empty(log_compute.size)
    path[0] = rng.standard_normal()
    keep = np.exp(-np.diff(log_compute) / length)
    for i, share in enumerate(keep):
        path[i + 1] = share * path[i] + np.sqrt(1 - share**2) * rng.standard_normal()
    return path
