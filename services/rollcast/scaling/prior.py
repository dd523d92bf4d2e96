"""What is believed about a run before its curve is seen.

The law's linear part (R_0, A) has a Gaussian prior cut to 0 <= R_0 < A <= 1; B is lognormal; C_mid is lognormal
relative to the last compute of the window, since people look at a curve around its bend.

The residuals have three parts. White noise of scale s. A drift of rho times s that lives on the scale of
`drift_length` in ln compute (an Ornstein-Uhlenbeck process): successive evaluations of one run on the same prompts
stray together, and no run follows the law exactly. And a transient kappa max(0, 1 - C / c): the first phase of training
is nearly linear and no part of the law (A.6 of arXiv 2510.13786), so that neither the first points nor the measured
start need lie on it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prior:
    """Centres and widths (standard deviations); logs are natural, weights are relative."""

    asymptote: tuple[float, float] = (0.65, 0.35)
    """Mean and standard deviation of A before the cut."""
    initial: tuple[float, float] = (0.3, 0.4)
    """The same for R_0."""
    log_exponent: tuple[float, float] = (0.75, 0.36)
    """ln B: the median 2 and the spread of the fits printed in arXiv 2510.13786."""
    log_midpoint: tuple[float, float] = (-0.8, 1.4)
    """ln(C_mid / midpoint_reference)."""
    midpoint_reference: float | None = None
    """Device-hours; None: the last compute of the window."""
    log_noise: tuple[float, float] = (-4.8, 0.9)
    """Centre and scale (Student t, 3 degrees of freedom) of the ln of the whole noise, s^2 (1 + rho^2), where no
    standard error is given: its standard deviation at a pass rate of one half."""
    log_error_scale: tuple[float, float] = (-0.12, 0.15)
    """The same in units of the given standard errors: they hold white noise and drift together, and a little more, the
    share of the prompts that never changes."""
    drift: tuple[float, ...] = (0.0, 0.6, 1.5, 4.0)
    """Candidates of rho."""
    drift_weight: tuple[float, ...] = (0.45, 0.27, 0.21, 0.07)
    drift_length: float = 0.3
    """Correlation length of the drift in ln compute."""
    transient: tuple[float, ...] = (0.05, 0.12, 0.25, 0.5)
    """Candidates of c / last compute; besides these, none, and one that ends before the first point."""
    transient_scale: float = 0.07
    """Standard deviation of kappa, in pass rate."""
    transient_weight: float = 0.9
    """Prior probability that there is a transient, shared equally by its candidates: nearly every run has one."""
    jump_scale: float = 0.15
    """Standard deviation of a jump or fall in the middle of a run, in pass rate (only to find such breaks)."""


DEFAULT_PRIOR = Prior()
