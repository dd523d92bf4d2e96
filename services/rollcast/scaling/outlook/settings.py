"""Numeric constants of `scaling/outlook/`: unit, what each bounds, and the evidence for its value."""

SMOOTHING = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
"""Weights of the newest reading that the smoothed level tries. The one with the least one-step errors is taken."""
MAX_SMOOTHED_READINGS = 1024
"""Newest readings that are smoothed: older ones have no weight left. Chosen for speed."""
LAW_SHARE = 0.5
"""Weight of the law's quantiles; the rest is that of the simple methods'. A learned weight gained nothing on
repositories that were left out (lab notes, "The stack")."""
MIN_WIDTH = 0.002
"""Pass rate added to a width before its logarithm is taken, and to a scale: no forecast is more certain."""
MAX_AHEAD = 12.0
"""Times the compute so far beyond which the simple methods stay as they are: nothing was learned about more."""
MIN_OUTLOOK_POINTS = 5
"""Readings from which the simple methods count: with fewer nothing was learned about them."""
MAX_COARSE_SAMPLES = 64
"""Answers of one reading up to which its step is coarse enough to count: the error of a larger one is in the noise."""
STEP_ROUNDING = 0.05
"""Largest distance of a reading from a multiple of the step, in steps: logs round to two or three digits."""
NUM_LEVEL_READINGS = 3
"""Readings whose mean is forecast, as backtests score it."""
