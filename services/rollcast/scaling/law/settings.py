"""Numeric constants of `scaling/law/`: unit, what each bounds, and the evidence for its value."""

ASYMPTOTE_MARGIN = 0.02
"""Pass rate. Three independent runs of one recipe differ in A by as much (A.5 of arXiv 2510.13786).
A smaller difference of asymptotes, or a smaller headroom, counts as zero."""

MIN_STANDARD_ERROR = 1e-4
"""Pass rate. A given standard error is raised to this, because a smaller one exhausts double
precision in the normal equations. An evaluation would need 25 million samples to be as exact."""
STD_PER_MEDIAN_DEVIATION = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation, 1 /
Phi^-1(3/4)."""

HALF_WIDTH_90_STD = 1.6448536269514722
"""Half of the 90 % interval of a normal distribution, in standard deviations."""
DEFAULT_BETWEEN_PROMPT_SHARE = 0.5
"""Share of the variance of a sample that lies between prompts, if it was not measured. Chosen, not
measured."""

MAX_LOG_BUDGET = 690.0
"""ln device-hours. Larger budgets are returned as infinite: exp overflows at 709."""
SIZE_LAW_PRIOR_VARIANCE = (25.0, 1.0, 1.0)
"""Variances of e_0, e_1 and k_max about 0. They are wide against anything measured, but let one
size alone give an answer. Chosen, not measured."""

BATCH_SHAPE_LAW_PRIOR_MEAN = (0.5, 0.0, -0.01, 0.0, -0.003)
"""Prior means of b_0 to b_4, in pass rate. Those of the parabolas are below 0, since IsoCompute
(arXiv 2603.12151) finds a best number of rollouts at every compute. Chosen, not measured."""
BATCH_SHAPE_LAW_FLAT_STD = (1.0, 0.04, 0.015, 0.015, 0.005)
"""Prior standard deviations of b_0 to b_4 on a plateau. In the paper's Fig 9 the number of rollouts
moves the end by 0.04 to 0.09 over some doublings, that of prompts by 0.02."""
BATCH_SHAPE_LAW_CLIMB_STD = (0.0, 0.5, 0.1, 0.5, 0.1)
"""Further prior standard deviation for each unit of dR / d ln C. During the climb a split that
needs s times the compute changes R by this slope times ln s. A step of twice the rollouts costs
twice as much, so s is usually between 1 and that ratio. Chosen, not measured."""
FLAT_SPLIT_SPREAD = 0.01
"""Pass rate: usual standard deviation between runs of one split on a plateau. Three runs of one
recipe differ by 0.02 in all (A.5 of arXiv 2510.13786)."""
PRIOR_LOG_SPREAD_STD = 0.7
"""Prior standard deviation of the ln of that spread: a factor of 3 either way is rare. Chosen, not
measured."""
