"""Options of a fit."""

from dataclasses import dataclass
from typing import Literal

from rollcast.scaling.posterior.prior import DEFAULT_PRIOR, Prior


@dataclass(frozen=True)
class FitOptions:
    """How to fit one curve."""

    initial: Literal["measured", "fitted"] | float = "measured"
    """R_0. "measured": the evaluation at compute 0 is a point like the others, unless a first phase
    frees it; fitted if there is no such evaluation. "fitted": free. A number: fixed."""
    exclude_before: float | Literal["auto"] = "auto"
    """Device-hours before which points are left out (0: none); auto finds an early phase that the
    law does not fit."""
    robust: bool = True
    """Give points beyond 4 standard deviations less weight."""
    prior: Prior = DEFAULT_PRIOR
    """The prior of the law; `LAW_PRIOR` for the paper's law alone."""

    def __post_init__(self) -> None:
        if isinstance(self.initial, float | int) and not 0 <= self.initial <= 1:
            raise ValueError(f"initial: {self.initial:g} is no pass rate; give a value in [0, 1].")
        if not isinstance(self.exclude_before, str) and not self.exclude_before >= 0:
            raise ValueError(
                f"exclude_before: {self.exclude_before:g} is negative; give device-hours."
            )
