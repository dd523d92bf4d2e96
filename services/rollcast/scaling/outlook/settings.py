"""Numeric constants of `scaling/outlook/`: unit, what each bounds, and the evidence
for its value.
"""

SMOOTHING = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
"""Weights of the newest reading that the smoothed level tries. The one with the least one-step
errors is taken."""
MIN_WIDTH = 0.002
"""Pass rate added to a width before its logarithm is taken, and to a scale: no forecast is more
certain."""
MIN_OUTLOOK_POINTS = 5
"""Readings from which the simple methods count: with fewer nothing was learned about them."""
NUM_LEVEL_READINGS = 3
"""Readings whose mean is forecast, as backtests score it."""
