"""Numeric constants of `scaling/decisions/`: unit, what each bounds, and the evidence for its
value.

"Windows of other groups" are the beginnings, a quarter and a half, of real curves of 36
repositories (docs/forecast-measured.md): the rules of the verdicts were chosen with these in sight.
"Paper" is arXiv 2510.13786.
"""

import math

from rollcast.scaling.law.settings import ASYMPTOTE_MARGIN

# Verdicts.
MIN_LAW_POINTS = 5
"""Points from which there is a verdict: one more than the law has parameters."""
FORECAST_FACTOR = 2.0
"""Times the compute so far at which the pass rate must be known to decide on a run."""
NOTABLE_GAIN = 0.03
"""Pass rate: gain that a saturated run is not expected to make."""

# Breaks.
MIN_BREAK = 0.03
"""Pass rate: smaller breaks, and smaller climbs out of the fitted curve, are left to the drift. Two
of 150 simulated runs with heavy-tailed drift climbed by 0.012 and 0.014 (lab notes, "Misfits that
bar a decision")."""
MIN_SUSPECTED_BREAK = 0.5 * ASYMPTOTE_MARGIN
"""Pass rate: least size of a break whose evidence is computed."""
MAX_EXPLAINED_SHARE = 1.0 - 1e-9
"""Largest share of the squares that a break may explain: ln(1 - share) is taken."""

# Falls.
MIN_COLLAPSE = 0.05
"""Pass rate: least fall that counts as a collapse, if noise does not explain it and it undoes much
of the rise."""
MIN_DECLINES = ((MIN_BREAK, 3.0), (MIN_COLLAPSE, 2.5))
"""A slow decline: its least size in pass rate, and in standard errors of the trend. A deeper one
needs fewer."""

# No learning. Chosen, not measured.
MIN_READINGS_WITHOUT_LEARNING = 10
"""Evaluations after the start from which a run may be said to learn nothing."""

# Trends.
TREND_NOISE_CORRELATIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Correlations of successive readings that noise may have."""
TREND_EXPONENTS = (1.0, 2.5, 6.0)
"""B of the rises that are looked for: from half to twice what most runs have."""
TREND_MIDPOINTS = (0.02, 0.04, 0.08, 0.15, 0.27, 0.45, 0.7, 1.0)
"""C_mid of these rises, as shares of the last compute."""

# Misfits.
MIN_MISFIT = 0.5 * ASYMPTOTE_MARGIN
"""Pass rate: least mean deviation that matters, of the newest readings or of a row on one side of
the curve."""
NEWEST_DIVISOR = 5
"""The newest readings are a fifth of all, rounded down. Chosen, not measured."""
MIN_NEWEST = 3
"""Readings that count as newest at least."""

# Forecasts.
CUT_ROUNDING = 1e-9
"""Relative amount by which a cut of a backtest is moved up, so that rounding does not hide a point
at the cut."""

# Advice.
NEGLIGIBLE_GAIN = 0.001
"""Pass rate: no evaluation shows a smaller gain."""

# Length of a wait.
WAIT_EVALUATIONS = (1, 2, 3, 5, 8, 13, 20, 30, 50, 80)
"""Lengths of a wait that are tried, in evaluations."""

# Stopping by itself.
NUM_AGREEING_REFITS = 3
"""Refits in a row that must agree before a run is stopped: a forecast moves with its last
points."""

# Comparisons.
LOG_COMPUTE_RATIO_MARGIN = math.log(1.1)
"""ln of a ratio of compute below which two runs are equally fast. Chosen, not measured: the paper
prints no spread of speed between runs of one recipe."""

# Shares of a budget.
MIN_RECENT_READINGS = 3
"""Least number of last readings whose mean is the pass rate of a broken run; otherwise a tenth of
all."""

# Splits of a step.
