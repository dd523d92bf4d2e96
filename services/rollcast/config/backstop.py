"""The wall time that a limit of processor time allows, for whoever shares its core with others."""

MAX_WALL_TIME_FACTOR = 3.0
"""Three processes may share a core before one loses its verdict."""
LEAST_WAIT_SECONDS = 10.0
"""Wall time beyond a limit at least: a short limit is not over because the machine was busy for a moment."""


def backstop_seconds(seconds: float) -> float:
    """Wall time after which whoever has `seconds` of processor time is ended, whatever it used of it."""
    return max(MAX_WALL_TIME_FACTOR * seconds, seconds + LEAST_WAIT_SECONDS)
