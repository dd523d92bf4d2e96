"""The scaling curve of a run: fit, forecast, verdict, comparison and the decisions that follow (numpy and scipy only).

curve.py        points of a run, the law
prior.py        what is believed before the points are seen
observations.py points merged and rotated
grid.py         posterior over the grid
posterior.py    fit(curve, options) -> Forecast
forecast.py     the questions a forecast answers
verdict.py      what kind of curve it is
baselines.py    power law, last value, log-linear, the paper's own grid
"""
