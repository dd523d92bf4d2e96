"""A proof: the baseline with a prior learned of other runs, which the benchmark compares with the
forecast.
"""

from __future__ import annotations

import numpy as np
import pytest

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.curve import Curve, SigmoidParameters
from rollcast.scaling.posterior.options import FitOptions
from testkit.forecast.learned_prior import learn_prior


def curve_of(asymptote: float, *, stop: float, seed: int, noise: float) -> Curve:
    compute = np.linspace(stop / 50, stop, 50)
    law = SigmoidParameters(0.2, asymptote, 1.7, 1.0).pass_rate(compute)
    return Curve.from_points(compute, law + noise * np.random.default_rng(seed).standard_normal(50))


def test_a_learned_prior_narrows_a_forecast_of_the_same_family_and_needs_three_runs() -> None:
    curves = [curve_of(0.68 + 0.01 * i, stop=5.0, seed=i, noise=0.004) for i in range(5)]
    prior = learn_prior(curves)
    assert prior.asymptote[0] == pytest.approx(0.7, abs=0.01)
    assert prior.log_exponent[0] == pytest.approx(np.log(1.7), abs=0.15)
    short = curve_of(0.7, stop=1.0, seed=9, noise=0.01)
    plain, learned = fit(short).asymptote(), fit(short, FitOptions(prior=prior)).asymptote()
    assert learned[2] - learned[0] < 0.6 * (plain[2] - plain[0])
    assert learned[0] < 0.7 < learned[2]
    with pytest.raises(ValueError, match="3 or more"):
        learn_prior(curves[:2])
