"""Runs of other kinds than the law, drawn with the standard library alone: no code and no
assumption of the fitter.

Each class draws its own truth at a compute of 1 (the whole run; the window is its first part),
readings at even steps with binomial noise of some hundred to a thousand prompts, and sometimes a
start. Compute is counted in steps.

    power_tail     A - D (1 + C / c)^-b with a small b: the gain never quite ends
    log_growth     linear in ln(1 + C / c), never near a ceiling
    log_creep      a steep sigmoid, then a slow logarithmic gain
    format_jump    a fast first jump of 0.2 to 0.5, then a slow power law
    wandering      the sigmoid with AR(1) noise of 0.9 from reading to reading
    shallow        the sigmoid with B from 0.4 to 1
    decline        a sigmoid that peaks and then slowly falls
    second_rise    a plateau that rises again after the window: no method can foresee it
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

Law = Callable[[float], float]


@dataclass(frozen=True)
class Drawn:
    """One run: readings in the window, and the truth at any compute."""

    compute: list[float]
    pass_rate: list[float]
    truth: Law


def _sigmoid(start: float, end: float, exponent: float, midpoint: float) -> Law:
    return lambda c: start + (end - start) / (1.0 + (midpoint / c) ** exponent) if c > 0 else start


def _power_tail(rng: random.Random) -> Law:
    end, depth = rng.uniform(0.5, 0.95), rng.uniform(0.2, 0.5)
    onset, exponent = math.exp(rng.uniform(-4.5, -2.0)), rng.uniform(0.15, 0.5)
    return lambda c: end - min(depth, end) * (1.0 + c / onset) ** -exponent


def _log_growth(rng: random.Random) -> Law:
    start, onset = rng.uniform(0.05, 0.4), math.exp(rng.uniform(-4.5, -1.5))
    slope = rng.uniform(0.1, 0.3) / math.log1p(1.0 / onset)
    return lambda c: min(start + slope * math.log1p(c / onset), 1.0)


def _log_creep(rng: random.Random) -> Law:
    start, gain = rng.uniform(0.1, 0.4), rng.uniform(0.15, 0.35)
    sigmoid = _sigmoid(start, start + gain, rng.uniform(2.0, 4.0), rng.uniform(0.05, 0.2))
    creep = rng.uniform(0.01, 0.03)
    return lambda c: min(sigmoid(c) + creep * math.log1p(c / 0.1), 1.0)


def _format_jump(rng: random.Random) -> Law:
    start, jump, speed = rng.uniform(0.02, 0.15), rng.uniform(0.2, 0.5), rng.uniform(0.01, 0.04)
    slow, onset, exponent = rng.uniform(0.1, 0.25), rng.uniform(0.05, 0.3), rng.uniform(0.3, 0.7)
    return lambda c: (
        start + jump * -math.expm1(-c / speed) + slow * (1.0 - (1.0 + c / onset) ** -exponent)
    )


def _law(rng: random.Random, min_exponent: float, max_exponent: float) -> Law:
    start = rng.uniform(0.05, 0.45)
    end = start + rng.uniform(0.15, 0.45)
    return _sigmoid(
        start, end, rng.uniform(min_exponent, max_exponent), math.exp(rng.uniform(-2.3, -0.5))
    )


def _decline(rng: random.Random) -> Law:
    law, slope = _law(rng, 1.5, 3.0), rng.uniform(0.02, 0.06)
    return lambda c: max(law(c) - slope * math.log1p(c / 0.25), 0.0)


def _second_rise(rng: random.Random) -> Law:
    first = _sigmoid(
        rng.uniform(0.1, 0.3), rng.uniform(0.4, 0.6), rng.uniform(2.0, 4.0), rng.uniform(0.05, 0.15)
    )
    gain, later = rng.uniform(0.1, 0.25), rng.uniform(1.2, 1.8)
    return lambda c: first(c) + gain / (1.0 + (later / max(c, 1e-9)) ** 6)


CLASSES: dict[str, Callable[[random.Random], Law]] = {
    "power_tail": _power_tail,
    "log_growth": _log_growth,
    "log_creep": _log_creep,
    "format_jump": _format_jump,
    "wandering": lambda rng: _law(rng, 1.5, 3.0),
    "shallow": lambda rng: _law(rng, 0.4, 1.0),
    "decline": _decline,
    "second_rise": _second_rise,
}


def draw_run(kind: str, seed: int) -> Drawn:
    """One run of a class: 12 to 60 readings over a window that ends at compute 1."""
    rng = random.Random(f"{kind} {seed}")
    truth = CLASSES[kind](rng)
    count = rng.randint(12, 60)
    compute = [(index + 1) / count for index in range(count)]
    prompts = rng.choice([200, 500, 1000])
    wander, keep = 0.0, 0.9 if kind == "wandering" else 0.0
    pass_rate = []
    for at in compute:
        rate = min(max(truth(at), 0.0), 1.0)
        error = math.sqrt(rate * (1.0 - rate) / prompts)
        wander = keep * wander + math.sqrt(1.0 - keep * keep) * rng.gauss(0.0, 1.0)
        pass_rate.append(min(max(rate + error * wander, 0.0), 1.0))
    return Drawn(compute, pass_rate, truth)
