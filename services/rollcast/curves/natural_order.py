"""Names in the order in which people count."""

import re

_DIGITS = re.compile(r"(\d+)")


def natural(name: str) -> list[tuple[int, str]]:
    """Key by which run-2 comes before run-10."""
    return [(int(part), "") if place % 2 else (0, part) for place, part in enumerate(_DIGITS.split(name))]
