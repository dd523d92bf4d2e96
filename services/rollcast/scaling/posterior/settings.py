"""Numeric constants of `scaling/posterior/`: unit, what each bounds, and the evidence for its value.

The prior itself is in `prior.py`, each field with its own explanation. "Grid study" refers to the lab
notes, "Drift by compute, and a grid with more noises": 72 curves against a grid with two to four times the nodes.
"""

# The prior's shape (prior.py has its centres and scales).
EXPONENT_DEGREES = 4.0
"""Degrees of freedom of Student's t, the prior of ln B. A few runs are far steeper or flatter than most: with a normal
prior the misses of A were runs with B below 1.25 or above 2.5 (lab notes, "Calibration of the forecast")."""
NOISE_DEGREES = 3.0
"""Degrees of freedom of Student's t, the prior of the ln of the noise. Chosen, not measured."""

# Placement of the grid.
COARSE_NODES = (8, 10, 16)
"""Nodes of ln s, ln B and ln C_mid while the grid is placed. The nodes of ln s stay: with six of them most of the error
of an interval was theirs (grid study)."""
FINE_NODES = (16, 32)
"""Nodes of ln B and ln C_mid in the final grid. 16 by 20 were too few for the paper's ten runs, whose few points leave
C_mid in several narrow places: medians were off by 0.0021 instead of 0.0007 (grid study)."""
PRIOR_REACH_SCALES = 4.0
"""Half width of the first grid, in prior scales. Chosen, not measured."""
MIN_LOG_NOISE_REACH = 1.8
"""ln. The noise is searched at least within this factor of its prior centre. Chosen, not measured."""
MAX_NOISE_PRIOR_SCALES = 30.0
"""Upper limit of that search in prior scales, so that a known standard error is respected. Chosen, not measured."""
MIN_COMBINED_STANDARD_ERROR = 1e-6
"""Pass rate. All points together determine R no better than this. Readings that repeat to the last digit would drive
the noise to 0, and the normal equations beyond double precision."""
MAX_FIRST_CELLS = (0.22, 0.5)
"""Largest distance between the first nodes of ln B and of ln C_mid. With wider cells a jump of 0.23 in a quiet curve
was found by chance (lab notes, "Shapes beside the law")."""
NEGLIGIBLE_NODE_WEIGHT = 3e-3
"""Share of the largest marginal weight below which a node lies outside the moved grid. With it and `FINE_NODES` medians
are within 0.0008 of a dense grid on average (grid study)."""
MIN_NOISE_WEIGHT = 0.02
"""Posterior weight below which a noise is dropped from the final grid. Chosen, not measured."""
COARSE_DEPARTURE_STRIDE = 5
"""Only every fifth first phase is used while the grid is placed. Chosen for speed; placing with candidates from the
whole list is what matters (lab notes, "Calibration of the forecast")."""
DROPPED_DEPARTURE_WEIGHT = 0.04
"""Posterior weight of all departures together that the final grid leaves out. Chosen, not measured."""
NUM_PLACED_DEPARTURES = 2
"""Likeliest departures under which unlikely noises are dropped. Chosen for speed."""
MIN_EFFECTIVE_NODES = 6.0
"""Effective nodes in the plane of B and C_mid at which the coarse grid is in place. Chosen, not measured."""
MAX_PLACEMENTS = 8
"""Times that the coarse grid is placed again at most; it is usually in place earlier."""
MIN_PHASE_END_PROBABILITY = 1e-9
"""Floor of the probability that a first phase ends in a cell, before its logarithm is taken."""
MIN_RIDGE_VARIANCE = 1e-12
"""Floor of the variance of ln B when the slope of the ridge is computed: avoids a division by 0."""
MIN_POINTS_BEFORE_BREAK = 2
"""Points before the first jump or slide that is considered: one point alone has no level to leave."""

# Normal equations.
CERTAIN_GRID_STD = 5.0
"""Standard deviations from a bound beyond which a node's distribution counts as inside it: the error is below 3e-7."""
MIN_BOUNDS_PROBABILITY = 1e-3
"""Probability of R_0 <= A <= 1 below which a falling node loses weight. The draws correct the rest, but could not if no
draw were inside the bounds: a run that reads 1 from its start on."""

MIN_PROBABILITY = 1e-100
"""Floor of a probability before its logarithm is taken."""

# Draws.
NUM_DRAWS = 4096
"""Draws of one forecast. The 5 % quantile then has a standard error of 0.3 % in probability."""
CEILING_STRETCH_FACTOR = 10.0
"""Ratio of compute over which a tail must gain less than `ASYMPTOTE_MARGIN`: as far as forecasts are checked."""
MAX_LOG_COMPUTE = 600.0
"""ln device-hours. Larger computes are cut to this: exp overflows at 709."""
TAIL_SEARCH_LOG_COMPUTE = (12.0, 7.0)
"""e-folds of compute before and after a tail's onset in which a pass rate is searched. Past that no tail is trusted."""
TAIL_SEARCH_STEP_LOG_COMPUTE = 0.25
"""e-folds of compute between the places of that search; in between it is interpolated."""
UNWEIGHTED_BOUNDS_PROBABILITY = 0.999
"""If every draw has at least this probability to lie within its bounds, the draws are not resampled."""
MIN_DRAW_WEIGHT = 1e-9
"""Floor of a draw's weight: a prior may rule out all that the readings leave."""
CERTAIN_DRAW_STD = 6.0
"""Standard deviations from a bound beyond which a draw needs no truncation: the error is below 1e-9."""
UNIFORM_MARGIN = 1e-9
"""Distance that uniform numbers keep from 0 and 1, whose normal values are infinite."""
MIN_BOUNDS_WEIGHT = 1e-12
"""Floor of the probability that a draw lies within its bounds: it is divided by, and far outside it rounds to 0."""
MIN_TAIL_RISE = 1e-12
"""Pass rate: floor of the rise between two places of the search that is divided by."""
MIN_CONDITIONAL_VARIANCE = 1e-18
"""Floor of the variance of R_0 given A, in squared pass rate: rounding may make it negative."""

# Choice of points.
OUTLIER_STANDARD_DEVIATIONS = 4.0
"""Standardised residual beyond which a point loses weight. Chosen, not measured; switching outliers off changed no
coverage (lab notes, "Calibration of the forecast")."""
OUTLIER_WEIGHT = 0.25
"""Relative precision of a point just beyond that limit; it falls with the square of the distance."""
MIN_OUTLIER_SCALE = 1e-9
"""Floor of the scatter that residuals are divided by: readings that repeat to the last digit have no scatter."""
MIN_ROBUST_POINTS = 8
"""With fewer points an outlier cannot be separated from the curve. Chosen, not measured."""
FIXED_START_STD = 1e-4
"""Pass rate: prior standard deviation of an R_0 that the user fixes."""

# Files of priors.
MAX_PRIOR_NUMBER = 1e300
"""Largest absolute value of a number in a prior file; nan and inf are refused with it."""
MAX_PRIOR_FILE_BYTES = 1 << 20
"""Larger files are refused unread."""
MAX_PHASE_ENDS = 100
"""Longest list of candidates for the end of a first phase; the default has 12."""
