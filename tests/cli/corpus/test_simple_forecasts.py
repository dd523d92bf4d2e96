"""The six simple methods against formulas written out, and against the laws
that made the readings.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from rollcast.cli.corpus import simple_forecasts as methods
from rollcast.cli.corpus.windows import Window
from tests.cli.corpus.small_corpus import curve


def window(y: list[float], num_seen: int) -> Window:
    return Window(curve("run", "a/b", y), 0.5, num_seen)


def test_last_value_mean_of_five_and_a_line_in_ln_compute() -> None:
    rates = [0.1, 0.3, 0.2, 0.5, 0.4, 0.6, 0.3, 0.6, 0.7, 0.6, 0.8, 0.5]
    found = methods.simple_forecasts(window(rates, 6))
    assert found["last"] == 0.6
    assert found["last5"] == pytest.approx(sum(rates[1:6]) / 5)
    logs = [math.log(x) for x in range(1, 7)]
    middle = sum(logs) / 6
    level = sum(rates[:6]) / 6
    deviations = [each - middle for each in logs]
    slope = sum(by * y for by, y in zip(deviations, rates[:6], strict=True)) / sum(
        by**2 for by in deviations
    )
    ahead = [min(max(level + slope * (math.log(x) - middle), 0.0), 1.0) for x in (10, 11, 12)]
    assert found["linear_in_log"] == pytest.approx(sum(ahead) / 3)


def test_the_grid_is_the_best_of_all_its_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    asymptotes = [0.1, 0.4, 0.6, 0.8]
    shares = [0.1, 0.5, 2.0]
    exponents = [0.5, 1.0, 3.0]
    monkeypatch.setattr(methods, "GRID_ASYMPTOTES", np.array(asymptotes))
    monkeypatch.setattr(methods, "GRID_MIDPOINT_SHARES", np.array(shares))
    monkeypatch.setattr(methods, "GRID_EXPONENTS", np.array(exponents))
    rates = [0.2, 0.25, 0.33, 0.38, 0.41, 0.44, 0.5, 0.5, 0.5, 0.5]

    def law(x: float, a: float, m: float, b: float) -> float:
        return 0.2 + (a - 0.2) / (1 + (m * 6 / x) ** b)

    nodes = [(a, m, b) for a in asymptotes if a > 0.2 for m in shares for b in exponents]
    squares = [sum((law(x, *node) - rates[x - 1]) ** 2 for x in range(1, 7)) for node in nodes]
    best = nodes[squares.index(min(squares))]
    expected = sum(law(x, *best) for x in (8, 9, 10)) / 3
    compute = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert methods.grid(compute, np.array(rates[:6]), np.array([8.0, 9.0, 10.0])) == pytest.approx(
        expected
    )
    full = np.full(6, 0.995)
    assert methods.grid(compute, full, np.array([8.0])) == 0.995, (
        "no asymptote above the start: the last value"
    )


def test_fits_of_readings_on_a_law_go_on_along_it() -> None:
    sigmoid = [0.2 + 0.5 / (1 + (9.0 / x) ** 1.7) for x in range(1, 41)]
    sigmoid[0] = 0.2 + 0.5 / (1 + 9.0**1.7)
    found = methods.simple_forecasts(window(sigmoid, 20))
    assert found["curve_fit"] == pytest.approx(sum(sigmoid[-3:]) / 3, abs=0.01)
    power = [0.7 - 0.4 * x**-0.6 for x in range(1, 41)]
    assert methods.simple_forecasts(window(power, 20))["power_law"] == pytest.approx(
        sum(power[-3:]) / 3, abs=1e-4
    )


def test_a_fit_that_does_not_converge_forecasts_the_last_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(methods, "MAX_EVALUATIONS", 1)
    found = methods.simple_forecasts(window([0.1, 0.3, 0.2, 0.5, 0.4, 0.6, 0.3, 0.6, 0.7, 0.6], 6))
    assert (found["curve_fit"], found["power_law"]) == (0.6, 0.6)
