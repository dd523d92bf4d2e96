"""Bounds that several share, and that the command line knows before it reads any settings."""

from __future__ import annotations

MOST_COMPUTE = 1e12
"""Of a reading, a budget or a question, in whatever unit the curve counts: more is a mistake, of a unit or a column."""
COMPUTES = "(0, 1e12]"
"""What may be asked for, as a sentence says it."""
MOST_STEPS = 10**12
MOST_DERIVED_SLOTS = 256
"""Of a generator whose KV cache holds more: vLLM's default, and about where more slots cease to make more tokens."""
