"""A sweep: several arms share one budget, and their joint forecast decides which runs next."""
