"""Bounds that every reader of a curve shares: beyond them a number is a mistake, of a unit or of a column."""

from __future__ import annotations

MOST_COMPUTE = 1e12
"""Of a reading, a budget or a question, in whatever unit the curve counts."""
COMPUTES = "(0, 1e12]"
"""What may be asked for, as a sentence says it."""
MOST_STEPS = 10**12
