"""Sources of evaluations: one module for each kind."""
