"""Beliefs about a sweep before its readings: how arms of one experiment differ and drift.

`python -m benchmarks.world_prior` learns the numbers by maximum likelihood from sweeps of other
groups; the file is that of `rollcast fit --prior`, under the key `sweep`.
"""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rollcast.scaling.posterior.stack import LEARNED


@dataclass(frozen=True)
class SweepPrior:
    """Standard deviations of pass rates, unless said otherwise.

    With w = ln(1 + t / time_scale) / ln(1 + 1 / time_scale) for the share t of the target, a curve
    is the sum of three parts, one of all arms, one of the arm, one of the seed:

        level + path B(w) + trend w,   B a Brownian motion: its gains so far say nothing of later
                                       ones, those of the trend do
    """

    time_scale: float
    """Share of the target: before it curves move with compute, after it with its logarithm."""
    common_level: float
    common_path: float
    common_trend: float
    arm_level: float
    arm_path: float
    arm_trend: float
    reading: float
    """Scatter of one reading, where its standard error is not larger."""
    log_scale: float
    """Natural logarithm: how much the differences between arms vary from sweep to sweep."""
    log_reading: float
    """Natural logarithm: how much the scatter of readings does."""
    mean: float = 0.35
    """Pass rate of a curve of which nothing is with_defaults; levels scatter about it by .2."""
    seed_path: float = 0.02
    """Three runs of one recipe end within .02 of one another (section 3 of arXiv 2510.13786)."""


def read_sweep_prior(path: Path) -> SweepPrior:
    """The numbers in the file, or the built-in ones if it says nothing of sweeps.

    Raises ValueError, one sentence: no such file, no JSON, an unknown field, a bad value.
    """
    try:
        # A file of priors has some kilobytes; a larger one is not read to its end.
        with path.open("rb") as file:
            content = json.loads(file.read(1 << 20))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is no prior ({error}); give a file of world_prior.") from None
    if not isinstance(content, dict) or "sweep" not in content:
        return learned_sweep_prior()
    return _parse(str(path), content["sweep"])


def learned_sweep_prior() -> SweepPrior:
    """The numbers learned from all repositories."""
    return _parse(str(LEARNED), json.loads(LEARNED.read_text())["sweep"])


def _parse(where: str, numbers: Any) -> SweepPrior:
    names = [field.name for field in fields(SweepPrior)]
    if not isinstance(numbers, dict) or not set(numbers) <= set(names):
        raise ValueError(f"{where}: sweep: give an object with the fields {', '.join(names)}.")
    # Two have a default: no curve that the others are learned from repeats a seed.
    with_defaults = {"mean": SweepPrior.mean, "seed_path": SweepPrior.seed_path, **numbers}
    for name in names:
        value: Any = with_defaults.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # Pass rates and logarithms of ratios: 100 would be no belief about either. NaN is refused.
        if not is_number or not 0.0 < value < 100.0:
            raise ValueError(f"{where}: sweep.{name} {str(value)[:80]}: give a number above 0.")
    return SweepPrior(**with_defaults)
