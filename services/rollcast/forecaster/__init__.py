"""The forecaster: reads a run's evaluations, refits the law at each new one and forecasts the end
of the run.
"""
