"""The forecaster: reads a run's evaluations, refits the law at each new one and tells where the run will end."""
