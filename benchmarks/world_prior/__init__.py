"""Priors learned from a folder of real curves, each without one repository: `python -m
benchmarks.world_prior`.
"""
