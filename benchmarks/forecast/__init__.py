"""How good are the forecasts?

`python -m benchmarks.forecast` from the repository root; see `__main__`.
"""
