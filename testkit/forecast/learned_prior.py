"""A prior learned from finished runs of the same family (model, data, task), by empirical Bayes.

Each round fits every run under the present prior and moves the prior's centres and widths to the
moments of all posteriors together. Of ln B the standard deviation becomes the scale of its Student
t, which is 1.4 times as wide: a dozen runs do not say how far the next may stray, and with less the
intervals of real runs hold too seldom. A run that is to be forecast, and every other reading of it,
must not be among the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.curve import Array, Curve
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import Prior

MIN_FAMILY_RUNS = 3
"""With fewer runs their spread says nothing about the next run."""
MIN_LEARNED_STD = 0.01
"""Pass rate: narrowest standard deviation of a learned A or R_0. Chosen, not measured."""
MIN_LEARNED_LOG_STD = 0.1
"""Narrowest standard deviation of a learned ln B or ln C_mid. Chosen, not measured."""


def learn_prior(curves: Sequence[Curve], options: FitOptions | None = None) -> Prior:
    """The prior of a further run of the family of `curves`.

    Raises:
        ValueError: fewer than 3 curves.
    """
    if len(curves) < MIN_FAMILY_RUNS:
        raise ValueError(
            f"curves: {len(curves)} given; a prior is learned from {MIN_FAMILY_RUNS} or more."
        )
    options = options or FitOptions()
    # Each round draws the runs closer together, and a dozen runs do not justify a prior as narrow
    # as the limit
    for _ in range(3):
        draws = [fit(curve, options).draws for curve in curves]
        prior = options.prior
        log_midpoint = _moments([draw.log_midpoint for draw in draws], MIN_LEARNED_LOG_STD)
        options = replace(
            options,
            prior=replace(
                prior,
                asymptote=_moments([draw.asymptote for draw in draws], MIN_LEARNED_STD),
                initial=_moments([draw.initial for draw in draws], MIN_LEARNED_STD),
                log_exponent=_moments(
                    [np.log(draw.exponent) for draw in draws], MIN_LEARNED_LOG_STD
                ),
                log_midpoint=(0.0, log_midpoint[1]),
                midpoint_reference=float(np.exp(log_midpoint[0])),
            ),
        )
    mean, spread = options.prior.asymptote
    # The next run's asymptote may differ more than those seen: to change it is why runs are made.
    # Chosen, not measured.
    return replace(options.prior, asymptote=(mean, 1.5 * spread))


def _moments(draws: list[Array], floor: float) -> tuple[float, float]:
    """Mean over runs and standard deviation of a further run: within runs, between runs, and of the
    mean itself.
    """
    means = np.array([draw.mean() for draw in draws])
    within = float(np.mean([draw.var() for draw in draws]))
    between = float(means.var(ddof=1)) * (1 + 1 / means.size)
    return float(means.mean()), max(float(np.sqrt(within + between)), floor)
