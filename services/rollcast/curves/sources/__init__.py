"""Where the evaluations of runs come from: one module for each kind of source."""
