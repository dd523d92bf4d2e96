"""Bounds that several share, and that the command line knows before it reads any settings."""

MOST_COMPUTE = 1e12
"""Largest compute of a reading, a budget or a question, in the unit of the curve. More is a wrong
unit or column."""
COMPUTES = "(0, 1e12]"
"""Allowed compute of a question, for sentences."""
MOST_STEPS = 10**12
MOST_DERIVED_SLOTS = 256
"""Slots of a generator whose KV cache could hold more: vLLM's default. More slots hardly produce
more tokens."""
LEAST_WAIT_SECONDS = 10.0
"""Wall time beyond a limit at least: a short limit is not over because the machine was busy for a
moment."""


def backstop_seconds(seconds: float, least_wait_seconds: float = LEAST_WAIT_SECONDS) -> float:
    """Wall time after which whoever has `seconds` of processor time is ended, whatever it used of
    it.
    """
    # Three processes may share a core before one loses its verdict
    return max(3.0 * seconds, seconds + least_wait_seconds)
