"""The prior: beliefs about a run before its curve is seen.

(R_0, A) have a Gaussian prior cut to 0 <= R_0 < A <= 1. ln B has Student's t distribution: a few
runs are far steeper or flatter than most. C_mid is lognormal relative to the last compute: people
look at a curve around its bend.

The readings depart from the law in four ways:

    white noise   of scale s
    drift         of scale rho s, correlated over `drift_length` (an Ornstein-Uhlenbeck process over
                  compute): no run follows the law exactly, and successive evaluations on the same
                  prompts stray together
    first phase   kappa max(0, 1 - C / c): the beginning of training, measured start included, is
                  nearly linear and not part of the law (A.6 of arXiv 2510.13786)
    tail          kappa ln(1 + C / onset): gains, or losses, that go on past the ceiling

The fields are the names in a prior file (`prior_file.py`), so they are kept short; each docstring
gives the unit. The values were chosen together, on simulated runs, on the curves of 18 other
repositories and on the ten runs of the paper (lab notes, "Calibration of the forecast" and "Tails
that fall"); what a docstring adds is the reason for the one value.
"""

from dataclasses import dataclass

from rollcast.scaling.posterior.stack import Stack, learned_stack


@dataclass(frozen=True)
class Prior:
    """Centres and widths (standard deviations unless said otherwise); logs are natural, weights are
    relative.
    """

    asymptote: tuple[float, float] = (0.55, 0.24)
    """Pass rate: mean and standard deviation of A before the cut. Broad, less likely near 0 and
    1."""
    initial: tuple[float, float] = (0.3, 0.28)
    """Pass rate: mean and standard deviation of R_0 before the cut. Broad."""
    log_exponent: tuple[float, float] = (1.0, 0.42)
    """ln B: centre and scale of Student's t with 4 degrees of freedom. Half of all runs have B
    between 2.0 and 3.7: runs of other groups stay at their start and then take off."""
    log_midpoint: tuple[float, float] = (-0.8, 1.4)
    """ln(C_mid / midpoint_reference): around half of the window, give or take a factor of four."""
    midpoint_reference: float | None = None
    """Device-hours that C_mid is relative to; None: the last compute of the window."""
    log_noise: tuple[float, float] = (-4.8, 0.9)
    """ln of a pass rate: centre and scale (Student's t, 3 degrees of freedom) of the whole noise,
    s^2 (1 + rho^2), if no standard error is given: its standard deviation at a pass rate of one
    half, 0.008."""
    log_error_scale: tuple[float, float] = (-0.06, 0.1)
    """The whole noise in units of the given standard errors, if the readings do not drift (rho =
    0): independent readings scatter as their errors say."""
    log_drifting_error_scale: tuple[float, float] = (-0.16, 0.22)
    """The whole noise in the same units if they drift: evaluations on the same prompts share a part
    of the given error, which adds no scatter. Drifting readings scatter a fifth less ("Calibration
    of the forecast")."""
    drift: tuple[float, ...] = (0.0, 0.6, 1.5, 4.0)
    """Candidates of rho, a ratio of standard deviations."""
    drift_weight: tuple[float, ...] = (0.3, 0.27, 0.26, 0.17)
    """Prior weights of these if no standard error is given: readings of unknown origin tend to
    wander."""
    error_drift_weight: tuple[float, ...] = (0.5, 0.29, 0.17, 0.04)
    """Prior weights of these if standard errors are given, which leave drift less room."""
    drift_length: float = 0.2
    """Correlation length of the drift, as a share of the last compute. 90 % intervals at twice the
    compute held 86 % of wandering runs with 0.1, 91.5 % with 0.2, 94 % with 0.3 ("Drift by compute,
    and a grid with more noises")."""
    transient: tuple[float, ...] = (0.05, 0.12, 0.25, 0.37, 0.5)
    """Candidates of the first phase's end c, as shares of the last compute; besides these, no first
    phase. Longer ones look like the bend of the law."""
    start_transient: tuple[float, ...] = (
        0.013,
        0.02,
        0.032,
        0.05,
        0.08,
        0.13,
        0.2,
        0.27,
        0.35,
        0.44,
        0.55,
        0.68,
    )
    """Candidates of c if the start is measured, which determines the end better; besides these, one
    that ends before the first point. They are close together: an end that is 15 % off costs 6
    points of coverage. The first three, for runs far past their bend, lowered the error at three
    C_mid by a fifth."""
    transient_scale: float = 0.07
    """Pass rate: standard deviation of the first phase's amplitude kappa."""
    transient_weight: float = 0.5
    """Prior probability that there is a first phase, shared by its candidates as `first_phase`
    says."""
    jump_scale: float = 0.3
    """Pass rate: the same as `transient_scale` if a run first learns the form of an answer. Base
    models gain 0.3 to 0.5 in a few steps."""
    jump_until: float = 0.15
    """Share of the window by which the form is learned: a later jump is a change of regime."""
    jump_weight: float = 0.25
    """Share of such runs among those with a first phase."""
    tail_weight: float = 0.65
    """Prior probability that the run goes on past its ceiling, or falls away from it,
    logarithmically in compute."""
    tail_onset: tuple[float, ...] = (0.05, 0.5)
    """Candidates of the tail's onset, as shares of the last compute."""
    tail_scale: tuple[float, ...] = (0.005, 0.08)
    """Pass rate for each e-fold of compute: candidates of the standard deviation of the tail's
    gain, about 0. A slow decline of 0.02 to 0.06 hides under the rise of most windows, so only the
    prior can allow for it."""
    tail_falls: float = 0.8
    """Prior probability that a tail falls instead of rising: a slow rise needs no tail, only a
    small B. With one half, 90 % intervals held 48 % of slow declines at ten times the compute
    ("Tails that fall")."""
    first_phase: tuple[float, float] = (-2.2, 0.8)
    """ln(c / C_mid): a ninth, 0.03 to 0.4 in nine of ten runs. The paper leaves out 1,500 GPU-hours
    of runs whose C_mid is 2,000 to 10,000."""
    turn_rate: float = 0.12
    """Turns of a run in each e-fold of compute to come: jumps that nothing in the window foretells.
    18 settings of the turns moved the pinball loss on other groups' curves only from 0.805 to
    0.843."""
    turn_scale: float = 0.1
    """Pass rate: mean size of a turn."""
    turn_up: float = 0.85
    """Share of turns that are gains."""
    break_scale: float = 0.15
    """Pass rate: standard deviation of a jump or fall in the middle of a run. Used only to find
    such breaks."""

    stack: Stack | None = None
    """How readings are forecast from the law and simple methods together; None: from the law
    alone."""


DEFAULT_PRIOR = Prior(stack=learned_stack())
"""The prior of any run: the law with or without a tail, weighed by evidence, and the learned
stack."""
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
"""The law of arXiv 2510.13786 alone, with B near the median (1.9) and the quartiles (1.75, 2.5) of
the fits that the paper prints: for comparisons of asymptotes and exponents, which no tail
shares."""
