"""Speed, memory and quality, measured: `python -m benchmarks.NAME` from the repository's root."""
