"""Leave-one-out with several runs of each recipe: does it find what was planted, and nothing where
nothing was?

Simulated at the size of the demo: 33 evaluations of 160 prompts x 4, a start of 0.24, an asymptote
of 0.9.
"""

from __future__ import annotations

import numpy as np
import pytest

from rollcast.scaling.decisions.compare import compare
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.leave_one_out import PartKind, leave_one_out
from rollcast.scaling.decisions.repeats import Repeats
from rollcast.scaling.law.curve import SigmoidParameters
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import LAW_PRIOR
from tests.scaling.calibration import WHOLE, demo_curve, table

LOW = SigmoidParameters(0.19, 0.6, 2.0, 0.065)
SLOW = SigmoidParameters(0.24, 0.9, 2.0, 0.13)


@pytest.mark.parametrize("seed", range(2))
def test_three_runs_tell_a_planted_ceiling_from_a_planted_speed(seed: int) -> None:
    whole, low, slow, _ = table(seed, 3, LOW, SLOW, WHOLE).rows
    assert (whole.kind, low.kind, slow.kind) == (
        None,
        PartKind.CEILING_MOVER,
        PartKind.EFFICIENCY_SHAPER,
    )
    assert whole.num_runs == low.num_runs == 3
    assert low.asymptote_loss is not None
    assert low.asymptote_loss[0] < 0.3 < low.asymptote_loss[2] < 0.5
    assert slow.compute_ratio is not None
    assert slow.compute_ratio[1] == pytest.approx(2.0, rel=0.15)
    assert slow.compute_ratio[0] < slow.compute_ratio[1] < slow.compute_ratio[2]


def test_what_was_not_planted_is_hardly_ever_found() -> None:
    """Tables with two twins each: at 90 % some may err, and never by taking a twin for another
    ceiling.
    """
    kinds = [row.kind for seed in range(2) for row in table(seed, 3, WHOLE, WHOLE).rows[1:]]
    assert kinds.count(PartKind.CANNOT_TELL) >= 3
    assert PartKind.CEILING_MOVER not in kinds


def test_null_controls_are_called_so_and_their_spread_widens_the_other_rows() -> None:
    """One run of each recipe, two of them the whole one again, one of which happened to be slow."""
    rng = np.random.default_rng(5)
    lag = SigmoidParameters(0.24, 0.9, 2.0, 0.065 * 1.25)
    slow = SigmoidParameters(0.24, 0.9, 2.0, 0.065 * 1.3)
    runs = [
        Repeats.from_curves(name, [demo_curve(law, rng)])
        for name, law in (("whole", WHOLE), ("again", WHOLE), ("lag", lag), ("slow", slow))
    ]
    plain = leave_one_out(runs[0], runs[1:]).rows
    rows = leave_one_out(runs[0], runs[1:], null_controls={"again", "lag"}).rows
    assert plain[2].kind is PartKind.EFFICIENCY_SHAPER
    assert plain[3].kind is PartKind.EFFICIENCY_SHAPER
    assert [row.kind for row in rows[1:]] == [
        PartKind.NULL_CONTROL,
        PartKind.NULL_CONTROL,
        PartKind.CANNOT_TELL,
    ]
    assert plain[3].compute_ratio is not None
    assert rows[3].compute_ratio is not None
    assert rows[3].compute_ratio[1] == pytest.approx(plain[3].compute_ratio[1], rel=0.1)
    width = [
        np.log(ratio[2] / ratio[0]) for ratio in (plain[3].compute_ratio, rows[3].compute_ratio)
    ]
    assert width[1] > 1.5 * width[0]


def test_a_slow_recipe_that_ends_low_is_no_ceiling_mover() -> None:
    """Its forecast of A may err: nothing has passed it yet."""
    crawling = SigmoidParameters(0.24, 0.8, 2.0, 0.4)
    for seed in range(2):
        (row,) = table(seed, 3, crawling).rows[1:]
        assert row.kind is PartKind.EFFICIENCY_SHAPER


def test_runs_that_stray_widen_the_intervals() -> None:
    """Runs of one recipe that end some 0.06 apart: their intervals are wider by that."""
    near = SigmoidParameters(0.24, 0.85, 2.0, 0.065)
    (steady,), (stray,) = (
        [row.asymptote_loss for row in table(3, 3, near, asymptote_spread=spread).rows[1:]]
        for spread in (0.0, 0.06)
    )
    assert steady is not None
    assert stray is not None
    assert stray[2] - stray[0] > 1.4 * (steady[2] - steady[0])


def test_two_runs_are_pooled_and_their_spread_is_students() -> None:
    """The interval of the loss against its definition: joint fits, pooled spread, Student's t with
    4 degrees.
    """
    rng = np.random.default_rng(5)
    recipes = [
        Repeats.from_curves(str(i), [demo_curve(WHOLE, rng, 0.05) for _ in range(3)])
        for i in range(2)
    ]
    (row,) = leave_one_out(recipes[0], recipes[1:]).rows[1:]
    medians = [
        [float(np.median(run.draws.asymptote)) for run in recipe.alone] for recipe in recipes
    ]
    spread = np.sqrt(np.mean([np.var(values, ddof=1) for values in medians]))
    rng = np.random.default_rng(9)
    draws = [rng.choice(recipe.joint.draws.asymptote, 200_000) for recipe in recipes]
    expected = draws[0] - draws[1] + spread * np.sqrt(2 / 3) * rng.standard_t(4, 200_000)
    assert row.asymptote_loss == pytest.approx(
        np.quantile(expected, (0.05, 0.5, 0.95)).tolist(), abs=0.006
    )


def test_one_run_of_each_is_the_plain_table() -> None:
    rng = np.random.default_rng(2)
    runs = [fit(demo_curve(law, rng), FitOptions(prior=LAW_PRIOR)) for law in (WHOLE, SLOW)]
    plain, repeats = leave_one_out(runs[0], runs[1:]), leave_one_out(*_as_repeats(runs))
    assert plain.rows == repeats.rows
    assert plain.rows[0].asymptote == pytest.approx(tuple(runs[0].asymptote()))


def _as_repeats(runs: list[Forecast]) -> tuple[Repeats, list[Repeats]]:
    first, *others = [Repeats(run, (run,)) for run in runs]
    return first, others


def test_a_pair_that_goes_the_same_way_at_half_the_pace_is_told_apart() -> None:
    """B is the same: only the compute tells it."""
    rng = np.random.default_rng(1)
    (pair,) = compare(
        [fit(demo_curve(law, rng), FitOptions(prior=LAW_PRIOR)) for law in (WHOLE, SLOW)]
    )
    assert pair.common_asymptote is not None
    assert pair.compute_ratio is not None
    assert 1 / pair.compute_ratio[1] == pytest.approx(2.0, rel=0.2)
    assert "run 1 is more efficient: half-way up it has taken 0." in pair.verdict
