"""Bounds that several share, and that the command line knows before it reads any settings."""

MOST_COMPUTE = 1e12
"""Largest compute of a reading, a budget or a question, in the unit of the curve. More is a mistake: a wrong unit or
column."""
COMPUTES = "(0, 1e12]"
"""What may be asked for, as a sentence says it."""
MOST_STEPS = 10**12
MOST_DERIVED_SLOTS = 256
"""Slots of a generator whose KV cache could hold more: vLLM's default. More slots hardly produce more tokens."""
