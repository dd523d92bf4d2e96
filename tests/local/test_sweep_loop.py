"""The loop of a sweep over runs whose ends are known: what it chooses, what it counts, and that it
survives deaths, signals and kills.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from rollcast.config.errors import PassingError, UserError
from rollcast.local.ablation import PlannedRun
from rollcast.local.sweep.choice import BUDGET_SPENT, SweepChoice, choose
from rollcast.local.sweep.ledger import SliceOutcome, SweepLedger
from rollcast.runfolder.sweep_records import SliceEnding
from rollcast.scaling.law.curve import Curve
from testkit.simulated_arms import (
    DEVICES,
    EVALUATION_SECONDS,
    START_SECONDS,
    STOP_SECONDS,
    KilledError,
    SimulatedArms,
    make_loop,
    make_terms,
    plan_arms,
)
from testkit.small_disk import fill, small_disk

CEILINGS = {"low": 0.3, "high": 0.8, "middle": 0.5, "flat": 0.1}
PAUSE = (START_SECONDS + STOP_SECONDS) * DEVICES / 3600.0


def test_the_best_arm_is_chosen_and_every_second_counts(tmp_path: Path) -> None:
    arms = SimulatedArms(CEILINGS)
    terms = make_terms(4, 0.5)
    loop, _, _ = make_loop(arms, tmp_path, terms)
    last = loop.run()
    assert last is not None
    assert last.reason in (BUDGET_SPENT, "every arm that may run has reached the target")
    assert last.best is not None
    assert last.best.arm == "high"
    assert last.spent == pytest.approx(arms.now_seconds * DEVICES / 3600.0)
    # A slice ends with an evaluation and a stop
    assert last.spent <= terms.budget + (EVALUATION_SECONDS + STOP_SECONDS) * DEVICES / 3600.0
    assert loop.ledger.pause_device_hours() == pytest.approx(PAUSE)
    assert loop.ledger.num_pauses == len(arms.slices)


def test_no_slice_is_shorter_than_ten_pauses(tmp_path: Path) -> None:
    arms = SimulatedArms(CEILINGS)
    terms = make_terms(4, 0.7, min_slice_pauses=10.0)
    loop, _, _ = make_loop(arms, tmp_path, terms)
    assert loop.run() is not None
    start = START_SECONDS * DEVICES / 3600.0
    lengths = [(begin, end) for _, begin, end in arms.slices[:-1]]  # the budget ends the last one
    assert len(lengths) >= 2
    assert lengths[0][1] >= 10.0 * start, "before the first stop its start alone is known"
    assert all(end - begin >= 10.0 * PAUSE or end >= 0.99 for begin, end in lengths[1:])


def test_a_run_that_is_chosen_again_goes_on_without_a_pause(tmp_path: Path) -> None:
    num_repeated = 0
    for number, share in enumerate((0.3, 0.5, 0.7, 0.9)):
        arms = SimulatedArms({"a": 0.5, "b": 0.52, "c": 0.54})
        loop, _, choices = make_loop(arms, tmp_path / str(number), make_terms(3, share))
        loop.run()
        chosen_runs = [choice.run.config.run for choice in choices if choice.run is not None]
        turns = [run for run, _ in groupby(chosen_runs)]
        assert [run for run, _, _ in arms.slices] == turns
        num_repeated += len(chosen_runs) - len(turns)
    assert num_repeated > 0


def test_an_arm_without_a_chance_is_paused_and_resumed_when_the_leader_falls(
    tmp_path: Path,
) -> None:
    arms = SimulatedArms({"leader": 0.8, "other": 0.3})
    terms = make_terms(2, 1.0, pause_below=0.3)
    loop, _, _ = make_loop(arms, tmp_path, terms)
    rise = [0.1 + 0.02 * step for step in range(20)]
    arms.readings = {"s-leader": rise, "s-other": [0.1] * 20}
    choice = loop.choose()
    assert choice.chances["other"] < 0.3
    assert choice.run is not None
    assert choice.run.variant.name == "leader"
    arms.readings["s-leader"] = [*rise, *[0.02] * 25]
    choice = loop.choose()
    assert choice.chances["other"] > 0.3
    assert choice.run is not None
    assert choice.run.variant.name == "other"


def test_many_arms_all_get_a_reading_before_one_is_paused(tmp_path: Path) -> None:
    """Of 30 arms none has a chance of .05 at the beginning."""
    arms = SimulatedArms({f"a{number}": 0.3 + 0.01 * number for number in range(30)})
    loop, _, _ = make_loop(arms, tmp_path, make_terms(30, 0.3, least_gain=0.001))
    last = loop.run()
    assert len(arms.readings) == 30
    assert last is not None
    assert last.best is not None
    assert arms.ceilings[last.best.arm] > 0.5


def test_a_dead_arm_is_tried_once_again_and_left_out_with_its_reason(tmp_path: Path) -> None:
    arms = SimulatedArms(CEILINGS)
    arms.deaths = {"s-high": 2, "s-low": 1}
    loop, lines, _ = make_loop(arms, tmp_path, make_terms(4, 0.5))
    last = loop.run()
    assert last is not None
    assert last.best is not None
    assert last.best.arm == "middle"
    assert loop.ledger.failure("s-high") == "its GPU is gone"
    assert loop.ledger.failure("s-low") is None
    assert [line for line in lines if "s-high" in line] == [
        "s-high failed: its GPU is gone; it is tried again once",
        "s-high failed: its GPU is gone; left out of the sweep",
    ]
    assert "s-high" not in arms.readings


def test_deaths_from_outside_leave_no_arm_out(tmp_path: Path) -> None:
    arms = SimulatedArms(CEILINGS)
    arms.kills = {"s-high": 4, "s-low": 1}
    loop, lines, _ = make_loop(arms, tmp_path, make_terms(4, 0.7))
    last = loop.run()
    assert last is not None
    assert last.best is not None
    assert last.best.arm == "high"
    assert [loop.ledger.failure(f"s-{name}") for name in CEILINGS] == [None] * 4
    assert len(arms.waits) == 5
    assert "s-high was ended: its GPU is gone; the sweep goes on in 30 s" in lines


def test_a_death_from_outside_between_two_failures_saves_no_arm(tmp_path: Path) -> None:
    ledger = SweepLedger.open(tmp_path)
    for ending in (SliceEnding.FAILED, SliceEnding.KILLED, SliceEnding.LOST):
        ledger.end("s-a", SliceOutcome(ending, error="x"), 0.1)
        assert ledger.failure("s-a") is None
    ledger.end("s-a", SliceOutcome(SliceEnding.FAILED, error="its GPU is gone"), 0.1)
    assert ledger.failure("s-a") == "its GPU is gone"


def test_a_machine_on_which_nothing_survives_ends_the_sweep_and_blames_no_arm(
    tmp_path: Path,
) -> None:
    arms = SimulatedArms(CEILINGS)
    arms.kills = {f"s-{name}": 10 for name in CEILINGS}
    loop, _, _ = make_loop(arms, tmp_path, make_terms(4, 0.5))
    with pytest.raises(PassingError, match="its GPU is gone; the last 5 slices ended like this"):
        loop.run()
    assert arms.waits == [30.0, 60.0, 120.0, 240.0]
    arms.kills = {}
    resumed, _, _ = make_loop(arms, tmp_path, make_terms(4, 0.7))
    last = resumed.run()
    assert last is not None
    assert last.best is not None
    assert last.best.arm == "high"


@pytest.mark.parametrize("num_more", [0, 1])
def test_a_sweep_that_is_started_again_tries_a_run_that_was_left_out_once_more(
    tmp_path: Path, num_more: int
) -> None:
    arms = SimulatedArms(CEILINGS)
    arms.deaths = {"s-high": 2}
    loop, _, _ = make_loop(arms, tmp_path, make_terms(4, 0.3))
    assert loop.run() is not None
    arms.deaths = {"s-high": num_more}
    resumed, lines, _ = make_loop(arms, tmp_path, make_terms(4, 0.8))
    last = resumed.run()
    assert last is not None
    assert last.best is not None
    assert last.best.arm == ("middle" if num_more else "high")
    assert (resumed.ledger.failure("s-high") is None) is (num_more == 0)
    assert len(lines) == num_more


def test_a_spent_budget_tries_nothing_again_and_chooses_no_run_that_was_left_out(
    tmp_path: Path,
) -> None:
    arms = SimulatedArms({"low": 0.2, "dead": 0.9, "flat": 0.15})
    arms.deaths = {"s-dead": 2}
    for _ in range(2):
        loop, _, _ = make_loop(arms, tmp_path, make_terms(3, 0.5))
        last = loop.run()
        assert last is not None
        assert set(last.chances) == {"low", "flat"}
        assert loop.ledger.failure("s-dead") == "its GPU is gone"


def test_a_slice_longer_than_a_whole_run_is_ended_and_counts_as_a_failure(tmp_path: Path) -> None:
    class Silent(SimulatedArms):
        def curve(self, item: PlannedRun) -> Curve | None:
            return None if item.variant.name == "silent" else super().curve(item)

    arms = Silent({"silent": 0.9, "other": 0.5})
    loop, lines, _ = make_loop(arms, tmp_path, make_terms(2, 3.0))
    last = loop.run()
    assert last is not None
    assert last.best is not None
    assert last.best.arm == "other"
    assert lines[0].startswith("s-silent failed: took 2.0")
    assert "device-hours, more than a whole run; it is tried again once" in lines[0]


def test_a_sweep_of_which_every_run_fails_ends_with_no_arm(tmp_path: Path) -> None:
    arms = SimulatedArms({"a": 0.3, "b": 0.4})
    arms.deaths = {"s-a": 2, "s-b": 2}
    loop, _, _ = make_loop(arms, tmp_path, make_terms(2, 0.9))
    last = loop.run()
    assert last is not None
    assert last.best is None
    assert last.reason == "every run has failed"


@pytest.mark.parametrize("evaluations", [1, 3, 17])
def test_a_stopped_sweep_goes_on_where_it_was(tmp_path: Path, evaluations: int) -> None:
    arms = SimulatedArms(CEILINGS)
    arms.interrupt_after = evaluations
    terms = make_terms(4, 0.5)
    loop, _, _ = make_loop(arms, tmp_path, terms)
    assert loop.run() is None
    before = arms.now_seconds
    resumed, _, _ = make_loop(arms, tmp_path, terms)
    last = resumed.run()
    assert arms.now_seconds > before
    assert last is not None
    assert last.best is not None
    assert last.best.arm == "high"
    assert last.spent == pytest.approx(arms.now_seconds * DEVICES / 3600.0)


@pytest.mark.parametrize("evaluations", [1, 3, 17])
def test_a_killed_sweep_closes_its_slice_and_goes_on(tmp_path: Path, evaluations: int) -> None:
    arms = SimulatedArms(CEILINGS)
    arms.kill_after = evaluations
    loop, _, _ = make_loop(arms, tmp_path, make_terms(4, 0.5))
    with pytest.raises(KilledError):
        loop.run()
    with (tmp_path / "sweep.jsonl").open("a") as file:
        file.write('{"event": "cho')  # a line that the kill cut
    resumed, _, _ = make_loop(arms, tmp_path, make_terms(4, 0.5))
    last = resumed.run()
    assert last is not None
    assert last.best is not None
    assert last.best.arm == "high"
    ledger = SweepLedger.open(tmp_path)
    assert ledger.open_slice is None
    assert [line.ending for line in ledger.lines].count(SliceEnding.LOST) == 1
    assert ledger.num_skipped == 1


def test_a_killed_slice_counts_what_its_runner_says(tmp_path: Path) -> None:
    class LeftTraining(SimulatedArms):
        def lost_device_hours(self, item: PlannedRun, began_at: float, earlier: float) -> float:
            return 0.1

    arms = LeftTraining(CEILINGS)
    arms.kill_after = 3
    terms = make_terms(4, 0.5)
    loop, _, _ = make_loop(arms, tmp_path, terms)
    with pytest.raises(KilledError):
        loop.run()
    before = arms.now_seconds
    resumed, _, _ = make_loop(arms, tmp_path, terms)
    last = resumed.run()
    assert last is not None
    resumed_hours = (arms.now_seconds - before) * DEVICES / 3600.0
    assert last.spent == pytest.approx(0.1 + resumed_hours)


def test_runs_a_thousandth_below_the_target_have_reached_it(tmp_path: Path) -> None:
    """Else such a run would be chosen again each second, its goal reached already."""
    curves = {run: Curve.from_points([0.2, 0.9995], [0.1, 0.5]) for run in ("s-a", "s-b")}
    choice = choose(
        make_terms(2, 2.0, pause_below=0.0),
        plan_arms(tmp_path, ["a", "b"]),
        curves,
        spent_device_hours=2.1,
        pause_device_hours=0.0,
    )
    assert choice.run is None
    assert choice.reason == "every arm that may run has reached the target"


def test_seeds_of_an_arm_share_its_chance(tmp_path: Path) -> None:
    arms = SimulatedArms({"high": 0.8, "low": 0.3})
    loop, _, _ = make_loop(arms, tmp_path, make_terms(4, 0.4), num_seeds=2)
    last = loop.run()
    assert last is not None
    assert set(last.chances) == {"high", "low"}
    assert last.chances["high"] > 0.9
    assert len({run for run, _, _ in arms.slices}) >= 2


def test_a_choice_worth_more_than_a_slice_ends_the_sweep(tmp_path: Path) -> None:
    arms = SimulatedArms({"high": 0.8, "flat": 0.1})
    loop, _, _ = make_loop(arms, tmp_path, make_terms(2, 1.0, least_gain=0.01))
    last = loop.run()
    assert last is not None
    assert "less than 0.01" in last.reason
    assert last.spent < 1.5


def test_a_sweep_goes_on_while_longer_slices_would_gain_enough(tmp_path: Path) -> None:
    """The next slice is chosen by its gain for its compute; that gain alone may be below the
    least.
    """
    curves = {
        f"s-{name}": Curve.from_points([0.1, 0.2, 0.3], rates)
        for name, rates in (("a", [0.2, 0.3, 0.35]), ("b", [0.25, 0.29, 0.31]))
    }

    def choose_with(least_gain: float) -> SweepChoice:
        return choose(
            make_terms(2, 1.0, pause_below=0.0, least_gain=least_gain),
            plan_arms(tmp_path, ["a", "b"]),
            curves,
            spent_device_hours=0.6,
            pause_device_hours=0.0,
        )

    gain = choose_with(0.0).gain
    assert choose_with(0.0).goal == pytest.approx(0.35), "whatever is planned, one slice is given"
    assert choose_with(1.01 * gain).run is not None
    assert choose_with(1.0).run is None


def test_a_full_disk_ends_the_sweep_in_a_sentence_and_leaves_the_ledger_whole(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        arms = SimulatedArms(CEILINGS)
        arms.interrupt_after = 20
        loop, _, _ = make_loop(arms, disk, make_terms(4, 0.5))
        assert loop.run() is None
        kept = (disk / "sweep.jsonl").read_bytes()
        ledger = SweepLedger.open(disk)
        filler = fill(disk, but_bytes=0)
        long_name = "s" * 5000  # needs a page of its own
        with pytest.raises(UserError, match=r"then go on with the same command"):
            ledger.begin(long_name, 1.0)
        assert (disk / "sweep.jsonl").read_bytes() == kept
        filler.unlink()
        resumed, _, _ = make_loop(arms, disk, make_terms(4, 0.5))
        last = resumed.run()
        assert last is not None
        assert last.best is not None
        assert last.best.arm == "high"


def test_an_ended_sweep_goes_on_with_a_larger_budget(tmp_path: Path) -> None:
    arms = SimulatedArms(CEILINGS)
    for share in (0.2, 0.4):
        loop, _, _ = make_loop(arms, tmp_path, make_terms(4, share, pause_below=0.0))
        last = loop.run()
        assert last is not None
        assert last.spent == pytest.approx(4 * share, abs=0.05)
