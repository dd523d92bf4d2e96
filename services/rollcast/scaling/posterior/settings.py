"""Numeric constants of `scaling/posterior/`: unit, what each bounds, and the evidence for its value.

The prior itself is in `prior.py`, each field with its own explanation. "Grid study" refers to the lab
notes, "Drift by compute, and a grid with more noises": 72 curves against a grid with two to four times the nodes.
"""

# The prior's shape (prior.py has its centres and scales).

# Placement of the grid.
COARSE_NODES = (8, 10, 16)
"""Nodes of ln s, ln B and ln C_mid while the grid is placed. The nodes of ln s stay: with six of them most of the error
of an interval was theirs (grid study)."""
FINE_NODES = (16, 32)
"""Nodes of ln B and ln C_mid in the final grid. 16 by 20 were too few for the paper's ten runs, whose few points leave
C_mid in several narrow places: medians were off by 0.0021 instead of 0.0007 (grid study)."""
PRIOR_REACH_SCALES = 4.0
"""Half width of the first grid, in prior scales. Chosen, not measured."""
MAX_FIRST_CELLS = (0.22, 0.5)
"""Largest distance between the first nodes of ln B and of ln C_mid. With wider cells a jump of 0.23 in a quiet curve
was found by chance (lab notes, "Shapes beside the law")."""
NEGLIGIBLE_NODE_WEIGHT = 3e-3
"""Share of the largest marginal weight below which a node lies outside the moved grid. With it and `FINE_NODES` medians
are within 0.0008 of a dense grid on average (grid study)."""
COARSE_DEPARTURE_STRIDE = 5
"""Only every fifth first phase is used while the grid is placed. Chosen for speed; placing with candidates from the
whole list is what matters (lab notes, "Calibration of the forecast")."""
MIN_POINTS_BEFORE_BREAK = 2
"""Points before the first jump or slide that is considered: one point alone has no level to leave."""

# Normal equations.
CERTAIN_GRID_STD = 5.0
"""Standard deviations from a bound beyond which a node's distribution counts as inside it: the error is below 3e-7."""

MIN_PROBABILITY = 1e-100
"""Floor of a probability before its logarithm is taken."""

# Draws.
NUM_DRAWS = 4096
"""Draws of one forecast. The 5 % quantile then has a standard error of 0.3 % in probability."""
TAIL_SEARCH_LOG_COMPUTE = (12.0, 7.0)
"""e-folds of compute before and after a tail's onset in which a pass rate is searched. Past that no tail is trusted."""
UNIFORM_MARGIN = 1e-9
"""Distance that uniform numbers keep from 0 and 1, whose normal values are infinite."""

# Choice of points.
OUTLIER_STANDARD_DEVIATIONS = 4.0
"""Standardised residual beyond which a point loses weight. Chosen, not measured; switching outliers off changed no
coverage (lab notes, "Calibration of the forecast")."""

# Files of priors.
MAX_PRIOR_FILE_BYTES = 1 << 20
"""Larger files are refused unread."""
MAX_PHASE_ENDS = 100
"""Longest list of candidates for the end of a first phase; the default has 12."""
