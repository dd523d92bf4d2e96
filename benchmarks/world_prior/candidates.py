"""Settings of the prior that are tried: the default one, and the default one shaken; and the mean of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rollcast.scaling.posterior.prior import DEFAULT_PRIOR, Prior

SHIFTED = {
    "asymptote": 0.08,
    "initial": 0.05,
    "log_exponent": 0.25,
    "log_midpoint": 0.4,
    "log_noise": 0.3,
    "log_error_scale": 0.08,
    "log_drifting_error_scale": 0.1,
    "first_phase": 0.3,
}
"""Pairs of a centre and a scale: standard deviation of the centre's shift; the scale is stretched as well."""
STRETCHED = ("drift_length", "transient_scale", "jump_scale", "tail_scale")
"""Positive numbers, multiplied; all of a list by the same factor. Turns are left alone: they are so rare that the
loss hardly depends on them, and a setting that shrinks them by chance makes intervals too narrow to decide on."""
CHANCES = ("transient_weight", "jump_weight", "tail_weight", "tail_falls")
MIXTURES = ("drift_weight", "error_drift_weight")
STRETCH = 0.35
"""Standard deviation of the ln of a factor."""
ODDS = 0.7
"""Vary the odds of a chance, and of each weight of a mixture."""
TOUCHED = 0.25
"""Share of the fields that a candidate changes: with half of them changed, nearly every one is worse."""
DIGITS = 4


def candidate(seed: int, number: int) -> Prior:
    """The setting of that number, the same whenever it is asked for; number 0 is the default."""
    if number == 0:
        return DEFAULT_PRIOR
    chance = np.random.default_rng([seed, number])
    changed: dict[str, object] = {}
    for name in (*SHIFTED, *STRETCHED, *CHANCES, *MIXTURES):
        touched, one, two = chance.random() < TOUCHED, *chance.standard_normal(2)
        several = chance.standard_normal(len(DEFAULT_PRIOR.drift))
        if touched:
            changed[name] = _shaken(name, getattr(DEFAULT_PRIOR, name), float(one), float(two), several)
    return replace(DEFAULT_PRIOR, **changed)  # type: ignore[arg-type]


def _shaken(name: str, value: object, one: float, two: float, several: np.ndarray) -> object:
    if name in SHIFTED:
        centre, scale = np.asarray(value, dtype=float)
        return round(centre + SHIFTED[name] * one, DIGITS), round(scale * np.exp(STRETCH * two), DIGITS)
    if name in MIXTURES:
        weight = np.asarray(value, dtype=float) * np.exp(ODDS * several)
        return tuple((weight / weight.sum()).round(DIGITS).tolist())
    if name in CHANCES:
        chance = float(np.asarray(value))
        odds = chance / (1.0 - chance) * np.exp(ODDS * one)
        return round(float(odds / (1.0 + odds)), DIGITS)
    stretched = np.asarray(value, dtype=float) * np.exp(STRETCH * one)
    return tuple(stretched.round(DIGITS).tolist()) if stretched.ndim else round(float(stretched), DIGITS)


def mean_of(priors: Sequence[Prior]) -> Prior:
    """Each field on the scale of the search: scales by their logs, chances by their odds."""
    changed: dict[str, object] = {}
    for name in (*SHIFTED, *STRETCHED, *CHANCES, *MIXTURES):
        values = np.array([getattr(prior, name) for prior in priors], dtype=float)
        if name in SHIFTED:
            centre, scale = values[:, 0].mean(), np.exp(np.log(values[:, 1]).mean())
            changed[name] = round(float(centre), DIGITS), round(float(scale), DIGITS)
        elif name in MIXTURES:
            changed[name] = tuple(values.mean(axis=0).round(DIGITS).tolist())
        elif name in CHANCES:
            odds = np.exp(np.log(values / (1.0 - values)).mean())
            changed[name] = round(float(odds / (1.0 + odds)), DIGITS)
        else:
            mean = np.exp(np.log(values).mean(axis=0)).round(DIGITS)
            changed[name] = tuple(mean.tolist()) if mean.ndim else float(mean)
    return replace(DEFAULT_PRIOR, **changed)  # type: ignore[arg-type]
