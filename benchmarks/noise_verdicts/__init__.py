"""Verdicts on noise, and on series that rise out of it: `python -m benchmarks.noise_verdicts`."""
