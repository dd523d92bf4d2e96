"""Numeric constants of `scaling/posterior/`: unit, what each bounds, and the evidence for its
value.

The prior itself is in `prior.py`, each field with its own explanation. "Grid study" refers to the
lab notes, "Drift by compute, and a grid with more noises": 72 curves against a grid with two to
four times the nodes.
"""

# The prior's shape (prior.py has its centres and scales).

# Placement of the grid.
COARSE_NODES = (8, 10, 16)
"""Nodes of ln s, ln B and ln C_mid while the grid is placed. The nodes of ln s stay: with six of
them most of the error of an interval was theirs (grid study)."""
FINE_NODES = (16, 32)
"""Nodes of ln B and ln C_mid in the final grid. 16 by 20 were too few for the paper's ten runs,
whose few points leave C_mid in several narrow places: medians were off by 0.0021 instead of 0.0007
(grid study)."""
PRIOR_REACH_SCALES = 4.0
"""Half width of the first grid, in prior scales. Chosen, not measured."""
MAX_FIRST_CELLS = (0.22, 0.5)
"""Largest distance between the first nodes of ln B and of ln C_mid. With wider cells a jump of 0.23
in a quiet curve was found by chance (lab notes, "Shapes beside the law")."""
NEGLIGIBLE_NODE_WEIGHT = 3e-3
"""Share of the largest marginal weight below which a node lies outside the moved grid. With it and
`FINE_NODES` medians are within 0.0008 of a dense grid on average (grid study)."""
MIN_POINTS_BEFORE_BREAK = 2
"""Points before the first jump or slide that is considered: one point alone has no level to
leave."""

# Normal equations.


# Draws.
NUM_DRAWS = 4096
"""Draws of one forecast. The 5 % quantile then has a standard error of 0.3 % in probability."""
TAIL_SEARCH_LOG_COMPUTE = (12.0, 7.0)
"""e-folds of compute before and after a tail's onset in which a pass rate is searched. Past that no
tail is trusted."""
UNIFORM_MARGIN = 1e-9
"""Distance that uniform numbers keep from 0 and 1, whose normal values are infinite."""

# Choice of points.

# Files of priors.
