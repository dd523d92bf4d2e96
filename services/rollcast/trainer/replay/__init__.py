"""Computes a recorded step again, without cluster and GPU, and compares it with its record."""
