"""How many digits of a difference of pass rates are told."""

from __future__ import annotations

LEAST_TOLD = 1e-6
"""Below it only the arithmetic differs."""


def difference(value: float) -> str:
    """Three digits behind the point; of less than 0.001 the first digit that is not 0, so that none reads 0.000."""
    if abs(value) >= 0.001:
        return f"{value:.3f}"
    return "0" if abs(value) < LEAST_TOLD else f"{float(f'{value:.1g}'):f}".rstrip("0")
