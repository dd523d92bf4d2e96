"""Numeric constants of `scaling/decisions/`: unit, what each bounds, and the evidence for its value.

"Windows of other groups" are the beginnings, a quarter and a half, of real curves of 36 repositories
(docs/forecast-measured.md): the rules of the verdicts were chosen with these in sight. "Paper" is arXiv 2510.13786.
"""

import math

from rollcast.scaling.law.settings import ASYMPTOTE_MARGIN

# Verdicts.
MIN_LAW_POINTS = 5
"""Points from which there is a verdict: one more than the law has parameters."""
FORECAST_FACTOR = 2.0
"""Times the compute so far at which the pass rate must be known to decide on a run."""
MAX_FORECAST_WIDTH = 0.3
"""Pass rate: widest 90 % interval there with which a run is forecastable. From half of a run six in ten windows of
other groups are as narrow, and the interval held 89 % of these. With 0.15 it is three in ten, and 87 % held."""
MIN_MIDPOINT_MULTIPLE = 1.5
"""Multiples of C_mid that the window must have reached before the bend counts as passed. If the window only touches the
bend, the prior alone parts it from the first phase and B from C_mid, and A tends to come out too low."""
MIN_BEND_PROBABILITY = 0.6
"""Posterior probability from which the bend counts as passed: a run that has not risen yet may rise any day. Surer ones
held no more often on the windows of other groups."""
NOTABLE_GAIN = 0.03
"""Pass rate: gain that a saturated run is not expected to make."""
MAX_GAIN_PROBABILITY = 0.1
"""Largest chance of it in a saturated run. Of 22 such windows of other groups, from half on, 2 gained it after all, and
7 of 41 flat runs were recognised; with 0.3, 20 of 99 and 24. The word is for runs that may be ended, so
false ones cost more than missed ones."""

# Breaks.
MIN_BREAK = 0.03
"""Pass rate: smaller breaks, and smaller climbs out of the fitted curve, are left to the drift. Two of 150 simulated
runs with heavy-tailed drift climbed by 0.012 and 0.014 (lab notes, "Misfits that bar a decision")."""
MIN_BREAK_LOG_ODDS = 4.6
"""ln of the evidence ratio at which a break is called, a hundred to one: its place was the best of dozens, and twenty
to one comes about by chance in one healthy run of a hundred."""
MAX_SHOWN_ODDS = 1e6
"""Odds above this are not printed: they come from the prior of the noise, not from the readings."""
MIN_BREAK_IMPROVEMENT = 10.0
"""Gain in n ln(sum of squares) from which the evidence of a break is computed. Chosen for speed: most curves show
none."""
MAX_STRAIGHT_RESIDUAL = 0.005
"""Pass rate: readings this close to a straight line have no noise, and any misfit of a sigmoid would have huge odds."""
MIN_SUSPECTED_BREAK = 0.5 * ASYMPTOTE_MARGIN
"""Pass rate: least size of a break whose evidence is computed."""
MIN_FREE_SQUARES = 1e-9
"""Floor of the squares of a whitened break shape that the law cannot explain: below it only rounding is left."""
MIN_RESIDUAL_SQUARES = 1e-12
"""Floor of the squared whitened residuals, for readings that are on the law to the last digit."""
MAX_EXPLAINED_SHARE = 1.0 - 1e-9
"""Largest share of the squares that a break may explain: ln(1 - share) is taken."""
MIN_EXPLAINING_WEIGHT = 0.1
"""Posterior weight from which a first phase or tail may explain residuals before a break does. Chosen, not measured."""
BREAK_LOG_PRIOR = -0.6931471805599453
"""ln of the prior probability of a jump, and of a slide: 1/2 each."""
MIN_PEAK_DROP_STANDARD_ERRORS = 2.0
"""Standard errors below the peak at which a fall from there is tried as a break. Chosen, not measured."""

# Falls.
MIN_COLLAPSE = 0.05
"""Pass rate: least fall that counts as a collapse, if noise does not explain it and it undoes much of the rise."""
MIN_COLLAPSE_STANDARD_ERRORS = 6.0
"""Standard errors of the difference of two running means that a collapse must exceed. The peak is the best of many
places, so 2 or 3 would be common by chance. Chosen, not measured."""
MIN_LOST_SHARE = 0.25
"""Share of the rise from start to peak that a collapse must undo. Chosen, not measured."""
MIN_DECLINES = ((MIN_BREAK, 3.0), (MIN_COLLAPSE, 2.5))
"""A slow decline: its least size in pass rate, and in standard errors of the trend. A deeper one needs fewer."""
MAX_FIRST_PHASE_FALL_SCALES = 2.0
"""Prior standard deviations of a first phase's amplitude up to which a fall from the start is put down to it."""
MIN_PHASE_END_WEIGHT = 0.2
"""Posterior weight from which the end of a first phase counts. Chosen, not measured."""
UNSTABLE_TRUNCATION_RATIO = 0.10
"""Share of truncated answers from which runs of the paper's batch size turned unstable (A.15)."""
TRUNCATION_RISE_FACTOR = 2.0
"""Times the truncation of the first half: a run that was always truncated this often has not changed."""

# No learning. Chosen, not measured.
MIN_READINGS_WITHOUT_LEARNING = 10
"""Evaluations after the start from which a run may be said to learn nothing."""
MAX_UNLEARNED_RISE_ERRORS = 2.5
"""Standard errors by which the last third may be away from the first."""
MAX_UNLEARNED_TREND_ERRORS = 2.5
"""Standard errors of the rank correlation of reading and order."""
MAX_UNLEARNED_EXCURSION_ERRORS = 4.0
"""Standard errors by which the farthest running mean may be away from the first: it is the best of many places."""
MAX_HIDDEN_MOVE = 0.03
"""Pass rate: 95 % bound of the movement that the noise may hide."""
MAX_RANKED_READINGS = 5000
"""Readings that are ranked as they are; more are averaged in blocks first. Chosen for speed."""
MAX_READING_CORRELATION = 0.9
"""Largest correlation of successive readings that widens the bound of the movement."""
NORMAL_95 = 1.645
"""95 % quantile of the normal distribution."""

# Trends.
TREND_NOISE_CORRELATIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Correlations of successive readings that noise may have."""
TREND_EXPONENTS = (1.0, 2.5, 6.0)
"""B of the rises that are looked for: from half to twice what most runs have."""
TREND_MIDPOINTS = (0.02, 0.04, 0.08, 0.15, 0.27, 0.45, 0.7, 1.0)
"""C_mid of these rises, as shares of the last compute."""
MIN_TREND_LOG_ODDS = 2.4
"""ln of the odds, 11 to 1, from which readings show a trend. Of runs without one, 5 % of those whose noise is an AR(1)
process with 0.5 pass it, and 1 to 4 % of those with independent noise (`python -m benchmarks.noise_verdicts`)."""
SMALL_SAMPLE_TREND_LOG_ODDS = 20.0
"""Added to this limit, times the squared number of readings: few readings fall in line by chance."""
MAX_TREND_READINGS = 512
"""Readings that are compared as they are; more are averaged in blocks first. Chosen for speed."""

# Misfits.
NUM_MISFIT_TRAJECTORIES = 1024
"""Draws that are compared with the readings: enough to see one in a thousand."""
MAX_MISFIT_SHARE = 1e-3
"""Share of repetitions that stray as far, below which the curve does not describe the run. Milder checks could not
separate runs that went another way from others (lab notes, "Misfits that bar a decision")."""
MIN_MISFIT = 0.5 * ASYMPTOTE_MARGIN
"""Pass rate: least mean deviation that matters, of the newest readings or of a row on one side of the curve."""
NEWEST_DIVISOR = 5
"""The newest readings are a fifth of all, rounded down. Chosen, not measured."""
MIN_NEWEST = 3
"""Readings that count as newest at least."""

# Forecasts.
MIN_LAW_DRAWS = 40
"""Draws without a tail from which A, B, C_mid and R_0 are reported of these alone: one in a hundred of all."""
NUM_READING_DRAWS = 2048
"""Draws from which readings are simulated: the ends of a 90 % interval are then known to 1 % and 3 % of its width.
Twice as many would take as long as the fit (lab notes, "Drift by compute, and a grid with more noises")."""
DRAWS_PER_BATCH = 512
"""Draws for which readings are simulated at a time: all of it stays in a processor's cache. Chosen for speed."""
MIN_BACKTEST_POINTS = 3
"""Points that a cut must show before the end is forecast from them."""
NUM_OUTCOME_POINTS = 3
"""Last points whose mean is the outcome that a backtest compares with. Chosen, not measured."""
CUT_ROUNDING = 1e-9
"""Relative amount by which a cut of a backtest is moved up, so that rounding does not hide a point at the cut."""
MIN_SHOWN_DIFFERENCE = 1e-6
"""Pass rate: smaller differences are only rounding and are printed as 0."""

# Advice.
GAIN_OF_DOUBLING = 0.02
"""Pass rate that as much compute again as was spent must bring, if the user names no gain; less in proportion if less
is left. Three runs of one recipe differ by as much (A.5 of the paper), so a smaller gain could not be shown."""
MIN_DEFAULT_WORTH = 0.002
"""Pass rate: least gain that the rest must bring if the user names none. Otherwise it shrinks to nothing with the rest,
and the advice of the last evaluations turns with every reading."""
MIN_WAIT_VALUE_SHARE = 0.1
"""Share of `worth` by which a choice is clearly better. A wait must be that much better than stop and continue, since
it costs a user's attention; with 0.3 the utility on curves of other groups is 4 % less. The last advice stays unless
another one is that much better."""
MIN_READING_VARIANCE = 1e-12
"""Floor of the variance of readings, in squared pass rate: it is divided by."""
RECENT_READINGS_DIVISOR = 10
"""The level is the mean of a tenth of the readings of the whole budget."""
MIN_READINGS_PER_RECENT = 5
"""Readings so far for each one of the level: at half of a budget a tenth of all is a fifth of those."""
DEFAULT_PERSISTENCE = 0.5
"""`Stack.persistence` of a law without a stack: that of a random walk."""
SOON_BUDGET_SHARE = 0.1
"""Share of the budget whose gain is reported separately. Chosen, not measured."""
NEGLIGIBLE_GAIN = 0.001
"""Pass rate: no evaluation shows a smaller gain."""
DEFAULT_BUDGET_FACTOR = 2.0
"""Times the compute so far, if no budget is known; as far ahead as a verdict looks."""
MAX_PRICE = 1e9
"""Largest price of one unit of compute that is accepted."""

# Length of a wait.
WAIT_EVALUATIONS = (1, 2, 3, 5, 8, 13, 20, 30, 50, 80)
"""Lengths of a wait that are tried, in evaluations."""

# Stopping by itself.
NUM_AGREEING_REFITS = 3
"""Refits in a row that must agree before a run is stopped: a forecast moves with its last points."""
MIN_STOPPING_EVALUATIONS = 10
"""Evaluations that a refit needs before its gain counts: with fewer a run that has not taken off looks flat."""
MIN_SHARE_WITHOUT_LEARNING = 0.5
"""Share of the budget that must be spent before a run ends by itself because it learns nothing: of such runs of other
groups 5 of 12 took off after a quarter of their length, 2 of 8 after half of it."""
MAX_FLAT_RISE = 0.02
"""Pass rate, from the first third of a curve to its last: less is within the spread of equal runs (paper, A.5)."""

# Comparisons.
LOG_COMPUTE_RATIO_MARGIN = math.log(1.1)
"""ln of a ratio of compute below which two runs are equally fast. Chosen, not measured: the paper prints no spread of
speed between runs of one recipe."""
FIXED_ASYMPTOTE_STD = 1e-3
"""Pass rate: prior standard deviation of an asymptote that is held at a value."""
MIN_GAIN_ODDS = 1e-6
"""Odds of the gain below which, or above whose inverse, a pass rate counts as never reached."""

# Shares of a budget.
MAX_ENUMERATED_RUNS = 10
"""Up to this many runs every subset is tried (1,024 of them); with more, runs are stopped one by one."""
MIN_RECENT_READINGS = 3
"""Least number of last readings whose mean is the pass rate of a broken run; otherwise a tenth of all."""
MAX_TIED_LOSS = 0.001
"""Pass rate: choices whose expected losses differ by less are equally good. No evaluation shows less."""
NUM_BUDGET_NODES = 2000
"""Budgets at which the best model size is looked up, in equal steps of ln. Chosen, not measured."""

# Splits of a step.
FIRST_TRIAL_FACTOR = 4.0
"""Times the one trained number of rollouts or prompts that a further run may have: far enough for a difference to show
above the spread between runs. Chosen, not measured."""
TRIAL_FACTOR = 2.0
"""Times a trained number if there are several: one doubling beyond them is as far as a parabola can be trusted."""
MIN_TRIAL_ROLLOUTS = 2
"""Fewest rollouts of a prompt: one alone has no advantage."""
NUM_REACHED_LEVELS = 40
"""Quantiles of a forecast from which its mean and standard deviation are taken. Chosen, not measured."""
SLOPE_FACTOR = 1.2
"""Times the compute, and divided by it, between which the slope of a curve is taken. Chosen, not measured."""
NUM_OUTCOME_NODES = 41
"""Outcomes of a further run over which its value is summed. Chosen, not measured."""
