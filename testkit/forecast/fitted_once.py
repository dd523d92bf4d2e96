"""Each curve is fitted once: tests ask several commands, and the library, for answers on the same
curves.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rollcast.plots import earlier
from rollcast.scaling.decisions import backtest, fit
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.law.curve import Curve
from rollcast.scaling.posterior.options import FitOptions


@contextmanager
def fitted_once() -> Iterator[None]:
    """A fit with the same curve and options as one before is that one, which nothing changes."""
    fit_part = fit.fit_part
    forecasts: dict[bytes, Forecast] = {}

    def known_or_fitted(curve: Curve, options: FitOptions) -> Forecast:
        key = pickle.dumps((curve, options))
        if key not in forecasts:
            forecasts[key] = fit_part(curve, options)
        return forecasts[key]

    with pytest.MonkeyPatch.context() as patch:
        for module in (fit, backtest, earlier):
            patch.setattr(module, "fit_part", known_or_fitted)
        yield
