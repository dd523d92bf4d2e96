"""What is believed about a run before its curve is seen.

The law's linear part (R_0, A) has a Gaussian prior cut to 0 <= R_0 < A <= 1; ln B has Student's t distribution, since
a few runs are far steeper or flatter than most; C_mid is lognormal relative to the last compute of the window, since
people look at a curve around its bend.

The residuals have three parts. White noise of scale s. A drift of rho times s that lives on the scale of
`drift_length` (an Ornstein-Uhlenbeck process over compute): successive evaluations of one run on the same prompts
stray together, and no run follows the law exactly. And a transient kappa max(0, 1 - C / c): the first phase of training
is nearly linear and no part of the law (A.6 of arXiv 2510.13786), so that neither the first points nor the measured
start need lie on it. It is over well before the bend: c is lognormal relative to C_mid.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prior:
    """Centres and widths (standard deviations); logs are natural, weights are relative."""

    asymptote: tuple[float, float] = (0.55, 0.24)
    """Mean and standard deviation of A before the cut: broad, less likely near 0 and 1."""
    initial: tuple[float, float] = (0.3, 0.28)
    """The same for R_0."""
    log_exponent: tuple[float, float] = (1.0, 0.42)
    """ln B: centre and scale (Student t, 4 degrees of freedom), near the median (1.9) and the quartiles (1.75, 2.5) of
    the fits printed in arXiv 2510.13786."""
    log_midpoint: tuple[float, float] = (-0.8, 1.4)
    """ln(C_mid / midpoint_reference)."""
    midpoint_reference: float | None = None
    """Device-hours; None: the last compute of the window."""
    log_noise: tuple[float, float] = (-4.8, 0.9)
    """Centre and scale (Student t, 3 degrees of freedom) of the ln of the whole noise, s^2 (1 + rho^2), where no
    standard error is given: its standard deviation at a pass rate of one half."""
    log_error_scale: tuple[float, float] = (-0.06, 0.1)
    """The same in units of the given standard errors where the readings do not drift (rho = 0): independent readings
    scatter as their errors say."""
    log_drifting_error_scale: tuple[float, float] = (-0.16, 0.22)
    """The same where they drift: evaluations on the same prompts, whose share of the given error is an offset of the
    whole curve and no scatter."""
    drift: tuple[float, ...] = (0.0, 0.6, 1.5, 4.0)
    """Candidates of rho."""
    drift_weight: tuple[float, ...] = (0.3, 0.27, 0.26, 0.17)
    """Their prior weights where no standard error is given: readings of unknown origin, which tend to wander."""
    error_drift_weight: tuple[float, ...] = (0.5, 0.29, 0.17, 0.04)
    """The same where standard errors are given, which leave drift less room."""
    drift_length: float = 0.2
    """Correlation length of the drift, as a share of the last compute of the window."""
    transient: tuple[float, ...] = (0.05, 0.12, 0.25, 0.37, 0.5)
    """Candidates of c / last compute; besides these, none. Longer ones look like the bend of the law."""
    start_transient: tuple[float, ...] = (0.013, 0.02, 0.032, 0.05, 0.08, 0.13, 0.2, 0.27, 0.35, 0.44, 0.55, 0.68)
    """The same where the start is measured, which tells the end better; besides these, one that ends before the first
    point. They lie close together: an end that is a fifth off bends the law instead. The first three are for runs far
    past their bend, whose first phase was over within a few points."""
    transient_scale: float = 0.07
    """Standard deviation of kappa, in pass rate."""
    transient_weight: float = 0.5
    """Prior probability that there is a transient, shared by its candidates as `first_phase` says."""
    jump_scale: float = 0.3
    """The same where a run first learns the form of an answer: base models gain 0.3 to 0.5 in a few steps."""
    jump_until: float = 0.15
    """Share of the window by which the form is learned: a later jump is a change of regime."""
    jump_weight: float = 0.25
    """Share of such runs among those with a first phase."""
    tail_weight: float = 0.65
    """Prior probability that the run goes on past its ceiling, or falls away from it, logarithmically in compute."""
    tail_onset: tuple[float, ...] = (0.05, 0.5)
    """Candidates of the tail's onset / last compute."""
    tail_scale: tuple[float, ...] = (0.005, 0.08)
    """Candidates of the size of the tail's gain for each e-fold of compute, in pass rate: a standard deviation about 0.
    A slow decline of 0.02 to 0.06 hides under the rise of most windows, so only the prior can allow for it."""
    tail_falls: float = 0.8
    """Prior probability that a tail falls instead of rising: for what rises slowly the law has a small B."""
    first_phase: tuple[float, float] = (-2.2, 0.8)
    """ln(c / C_mid): a ninth, 0.03 to 0.4 in nine of ten runs. The paper leaves out 1,500 GPU-hours of runs whose
    C_mid is 2,000 to 10,000."""
    turn_rate: float = 0.12
    """Turns that a run takes in each e-fold of compute to come: a jump that nothing in the window foretells."""
    turn_scale: float = 0.1
    """Mean size of a turn, in pass rate."""
    turn_up: float = 0.85
    """Share of turns that are gains."""
    break_scale: float = 0.15
    """Standard deviation of a jump or fall in the middle of a run, in pass rate (only to find such breaks)."""


DEFAULT_PRIOR = Prior()
"""Of any run: the law with or without a tail, weighed by evidence."""
LAW_PRIOR = Prior(
    asymptote=(0.62, 0.25),
    initial=(0.3, 0.3),
    log_exponent=(0.74, 0.215),
    log_midpoint=(-0.75, 1.4),
    drift_weight=(0.45, 0.27, 0.21, 0.07),
    drift_length=0.3,
    jump_weight=0.0,
    tail_weight=0.0,
    turn_rate=0.0,
)
"""The law of arXiv 2510.13786 and nothing beside it, with B near the median (1.9) and the quartiles (1.75, 2.5) of the
fits that the paper prints: for comparisons of asymptotes and exponents, which no tail shares."""
