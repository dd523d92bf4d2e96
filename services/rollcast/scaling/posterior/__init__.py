"""Posterior of the law, given the points of a curve."""
