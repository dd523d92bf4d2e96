"""Numbers that an environment gives of an episode besides its reward, within bounds: its code may
be anybody's.
"""

import re
from collections.abc import Mapping
from typing import Any

MAX_METRICS = 32
"""For each environment: every name is a time series, and a column of the loggers."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


def bound_metrics(values: Mapping[Any, Any]) -> dict[str, float]:
    """Numbers with usable names, at most MAX_METRICS of them in their order.

    All else is left out.
    """
    metrics: dict[str, float] = {}
    for name, value in values.items():
        if len(metrics) == MAX_METRICS:
            break
        if _is_name(name) and _is_number(value):
            metrics[name] = float(value)
    return metrics


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _is_number(value: object) -> bool:
    # A flag is 0 or 1. NaN compares as false. An integer may have hundreds of digits.
    return isinstance(value, int | float) and abs(value) <= 1e30  # sums of it stay finite
