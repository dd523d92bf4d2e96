"""The law of a run's curve, and the points that it is fitted to."""
