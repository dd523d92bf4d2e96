"""The scaling curve of a run: fit, forecast, verdict, comparison and the decisions that follow (numpy and scipy only).

The law and its fit
    curve.py         points of a run, the law
    prior.py         what is believed before the points are seen; learning.py: learned from finished runs
    observations.py  points merged and rotated
    departure.py     first phases and breaks: ways to leave the law
    grid.py          posterior over the grid; draws.py: settings drawn from it
    posterior.py     fit(curve, options) -> Forecast
    forecast.py      the questions a forecast answers
    verdict.py       what kind of curve it is
    baselines.py     power law, last value, log-linear, the paper's own grid

Decisions
    stopping.py      is the rest of the budget worth it
    allocation.py    which of several runs to stop
    compare.py       which run is better; leave_one_out.py: what each part of a recipe is worth
    model_size.py    the power law across model sizes
    backtest.py      what would have been said earlier
"""
