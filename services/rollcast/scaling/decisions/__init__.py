"""Verdict and forecast of a run, and the decisions that follow from them."""
