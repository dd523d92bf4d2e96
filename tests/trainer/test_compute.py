"""Device-hours against a plain sum."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.config.errors import PassingError, UserError
from rollcast.config.rules_versions import GRADING_RULES, SPLIT_RULES
from rollcast.trainer.control.compute import GENERATOR, TRAINER, ComputeLedger
from rollcast.trainer.control.progress import MalformedProgress, Progress
from testkit.trainer.states import make_state


class Clock:
    """Seconds that pass, and a wall clock that somebody may set."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.offset = 1.7e9

    def __call__(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + self.offset

    def ledger(self, path: Path) -> ComputeLedger:
        return ComputeLedger(path, clock=self, wall_clock=self.wall)


@settings(max_examples=100)
@given(
    spans=st.lists(st.tuples(st.floats(0, 1e5), st.integers(0, 64)), min_size=1, max_size=30),
    trainer=st.integers(1, 16),
)
def test_every_interval_counts_with_the_devices_allocated_at_its_start(
    spans: list[tuple[float, int]], trainer: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    clock = Clock()
    ledger = clock.ledger(tmp_path_factory.mktemp("c") / "compute.json")
    ledger.start(trainer, None, start_up=0.0)
    generators, device_seconds = 0, 0.0
    for seconds, next_generators in spans:
        clock.now += seconds
        device_seconds += seconds * (trainer + generators)
        ledger.tick(next_generators)
        generators = next_generators
    assert ledger.total_state == pytest.approx(device_seconds / 3600, abs=1e-6)
    assert sum(ledger.spent.values()) == pytest.approx(device_seconds / 3600, abs=1e-6)


def test_spent_never_falls_when_the_state_goes_back_to_a_checkpoint(tmp_path: Path) -> None:
    clock = Clock()
    first = clock.ledger(tmp_path / "compute.json")
    first.start(2, None, start_up=0.0)
    first.tick(3)
    clock.now += 3600
    first.tick(3)
    checkpoint = dict(first.state)
    clock.now += 3600
    first.tick(3)
    first.save()  # killed here: one hour is lost, both were spent
    clock.now += 720  # the generators stayed up, the trainer did not
    second = clock.ledger(tmp_path / "compute.json")
    second.start(2, checkpoint, start_up=0.0)
    assert second.state == {GENERATOR: 3.0, TRAINER: 2.0}
    assert second.spent == {GENERATOR: 6.0 + 0.6, TRAINER: 4.0}


def test_a_generator_counts_from_the_start_of_its_process(tmp_path: Path) -> None:
    clock = Clock()
    first = clock.ledger(tmp_path / "compute.json")
    first.start(1, None, start_up=0.0)
    clock.now += 3600
    first.tick(
        4, [4200.0, 4200.0, 1800.0, 0.0]
    )  # two of them were there ten minutes before the trainer
    clock.now += 3600
    first.tick(4)
    assert first.state == first.spent == pytest.approx({GENERATOR: 8.5 / 3 + 4.0, TRAINER: 2.0})
    first.save()
    clock.now += 360
    second = clock.ledger(tmp_path / "compute.json")
    second.start(1, dict(first.state), start_up=0.0)
    clock.now += 360
    second.tick(4, [720.0] * 4)  # they lost the first trainer, whose absence is counted already
    assert second.spent == pytest.approx({GENERATOR: 8.5 / 3 + 4.0 + 4 * 0.2, TRAINER: 2.1})
    assert second.state == pytest.approx({GENERATOR: 8.5 / 3 + 4.0 + 4 * 0.1, TRAINER: 2.1})


@pytest.mark.parametrize("said", [86_400.0, 1e300])
def test_what_a_generator_says_is_bounded(said: float, tmp_path: Path) -> None:
    ledger = ComputeLedger(tmp_path / "compute.json")
    ledger.start(1, None, start_up=0.0)
    ledger.tick(1, [said])
    assert ledger.state[GENERATOR] == ledger.spent[GENERATOR] == pytest.approx(0.25, abs=0.01)


def test_a_new_name_is_worth_two_hours_at_most_however_old_the_run_is(tmp_path: Path) -> None:
    clock = Clock()
    ledger = clock.ledger(tmp_path / "compute.json")
    ledger.start(1, None, start_up=0.0)
    clock.now += 50 * 3600
    ledger.tick(10, [1e300] * 10)
    assert ledger.state[GENERATOR] == pytest.approx(20.0)


@pytest.mark.parametrize("said", [4501.0, 86_400.0, 1e300, float("inf")])
def test_a_generator_is_believed_a_quarter_of_an_hour_before_the_trainer_at_most(
    said: float, tmp_path: Path
) -> None:
    clock = Clock()
    ledger = clock.ledger(tmp_path / "compute.json")
    ledger.start(1, None, allocated_seconds=600, start_up=0.0)
    clock.now += 3000
    ledger.tick(1, [said])
    assert ledger.state == ledger.spent == pytest.approx({GENERATOR: 1.25, TRAINER: 1.0})
    ledger.save(stopped=True)
    # the whole run was stopped, for so long that a generator may have waited five minutes of it
    clock.now += 300
    again = clock.ledger(tmp_path / "compute.json")
    again.start(1, dict(ledger.state), start_up=0.0)
    clock.now += 360
    again.tick(1, [said])
    assert again.spent == pytest.approx({GENERATOR: 1.25 + 660 / 3600, TRAINER: 1.1})


@pytest.mark.parametrize("jump", [-7 * 3600.0, 7 * 3600.0])
def test_a_wall_clock_that_is_set_changes_nothing(jump: float, tmp_path: Path) -> None:
    clock = Clock()
    ledger = clock.ledger(tmp_path / "compute.json")
    ledger.start(2, None, start_up=0.0)
    ledger.tick(3)
    for _ in range(4):
        clock.now += 900
        clock.offset += jump
        ledger.tick(3)
        clock.now += 900
        clock.offset -= jump / 2
        ledger.tick(4, [900.0])
        ledger.tick(3)
    assert ledger.state == ledger.spent == pytest.approx({GENERATOR: 7.0, TRAINER: 4.0})
    ledger.save()
    clock.now += (
        180  # in the absence of a trainer the wall clock is all there is; it stays as it is here
    )
    again = clock.ledger(tmp_path / "compute.json")
    again.start(2, dict(ledger.state), start_up=0.0)
    assert again.spent == pytest.approx({GENERATOR: 7.0 + 3 * 0.05, TRAINER: 4.0})


@pytest.mark.parametrize("jump", [-7 * 3600.0, 7 * 3600.0])
def test_a_wall_clock_that_is_set_between_two_trainers_costs_a_quarter_of_an_hour_at_most(
    jump: float, tmp_path: Path
) -> None:
    clock = Clock()
    first = clock.ledger(tmp_path / "compute.json")
    first.start(1, None, start_up=0.0)
    first.tick(1)
    clock.now += 3600
    first.tick(1)
    first.save()
    clock.now += 60
    clock.offset += jump
    second = clock.ledger(tmp_path / "compute.json")
    second.start(1, dict(first.state), start_up=0.0)
    clock.now += 60
    second.tick(1, [120.0])
    assert 1.0 <= second.spent[GENERATOR] <= 1.0 + 2 * 60 / 3600
    assert second.spent[TRAINER] == pytest.approx(1.0 + 60 / 3600)


def test_nothing_is_spent_while_the_whole_run_is_stopped(tmp_path: Path) -> None:
    clock = Clock()
    first = clock.ledger(tmp_path / "compute.json")
    first.start(1, None, start_up=0.0)
    first.tick(4)
    clock.now += 3600
    first.tick(4)
    first.save(stopped=True)
    clock.now += 7200
    second = clock.ledger(tmp_path / "compute.json")
    second.start(1, dict(first.state), start_up=0.0)
    assert second.spent == {GENERATOR: 4.0, TRAINER: 1.0}


def test_a_long_absence_is_a_stopped_run(tmp_path: Path) -> None:
    clock = Clock()
    first = clock.ledger(tmp_path / "compute.json")
    first.start(1, None, start_up=0.0)
    first.tick(4)
    first.save()
    clock.now += 24 * 3600
    second = clock.ledger(tmp_path / "compute.json")
    second.start(1, None, start_up=0.0)
    assert second.spent == {GENERATOR: 0.0, TRAINER: 0.0}


GOOD = {
    "spent": {"generator": 1.0, "trainer": 2.0},
    "devices": {"generator": 1, "trainer": 1},
    "at": 5.0,
}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "1",
        "[" * 100_000,
        "\x00\xff",
        json.dumps({"spent": {}}),
        json.dumps({**GOOD, "spent": {"generator": 1.0}}),
        json.dumps({**GOOD, "spent": {"generator": "NaN", "trainer": 1.0}}),
        json.dumps({**GOOD, "spent": {"generator": -1.0, "trainer": 1.0}}),
        json.dumps({**GOOD, "devices": {"generator": float("inf")}}),
        json.dumps({**GOOD, "devices": None}),
        json.dumps({**GOOD, "at": None}),
        json.dumps({**GOOD, "at": float("inf")}),
    ],
)
def test_a_spoilt_file_of_what_was_spent_is_one_sentence(content: str, tmp_path: Path) -> None:
    path = tmp_path / "compute.json"
    path.write_bytes(content.encode("latin-1"))
    ledger = ComputeLedger(path)
    with pytest.raises(
        UserError, match=rf"folder: {path} does not contain the device-hours spent; remove it"
    ):
        ledger.start(1, None, start_up=0.0)
    path.write_text(json.dumps(GOOD))
    ledger.start(1, None, start_up=0.0)
    assert ledger.spent == GOOD["spent"]


def test_a_disk_that_refuses_is_one_sentence_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "compute.json"
    ledger = ComputeLedger(path)
    ledger.start(1, None, start_up=0.0)
    ledger.save()
    before = path.read_bytes()
    (tmp_path / "compute.tmp").mkdir()
    with pytest.raises(
        UserError, match=rf"folder: {path} cannot be written \(Is a directory\)"
    ) as error:
        ledger.save(stopped=True)
    assert error.value.exit_code == 2
    (tmp_path / "compute.tmp").rmdir()
    (tmp_path / "compute.tmp").symlink_to("/dev/full")
    with pytest.raises(
        PassingError, match=rf"folder: {path} cannot be written \(No space left on device\)"
    ):
        ledger.save(stopped=True)
    assert path.read_bytes() == before
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match=rf"folder: {path} cannot be read \(Is a directory\)"):
        ledger.start(1, None, start_up=0.0)


def test_the_start_up_lasts_until_rollouts_come_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    """Two devices: an hour until the first rollouts, two of learning, killed; half an hour until
    those of the next.
    """
    clock = Clock()
    ledger = clock.ledger(tmp_path / "compute.json")
    ledger.start(1, None, start_up=0.0)
    ledger.tick(1)
    clock.now += 3600
    ledger.tick(1)
    assert ledger.total_start_up == ledger.total_state == pytest.approx(2.0)
    ledger.rollouts_came()
    clock.now += 7200
    ledger.tick(1)
    ledger.rollouts_came()
    assert (ledger.total_start_up, ledger.total_state) == (pytest.approx(2.0), pytest.approx(6.0))
    progress = Progress(compute_state=dict(ledger.state), start_up=ledger.total_start_up)
    again = Progress.from_json(json.loads(json.dumps(progress.as_json())))
    second = clock.ledger(tmp_path / "compute.json")
    second.start(1, again.compute_state, start_up=again.start_up)
    second.tick(1)
    assert second.total_start_up == pytest.approx(2.0), "it never falls"
    clock.now += 1800
    second.tick(1)
    second.rollouts_came()
    clock.now += 3600
    second.tick(1)
    assert (second.total_start_up, second.total_state) == (pytest.approx(3.0), pytest.approx(9.0))


def test_an_engine_that_joins_late_has_started_up_too(tmp_path: Path) -> None:
    clock = Clock()
    ledger = clock.ledger(tmp_path / "compute.json")
    ledger.start(1, None, start_up=0.0)
    clock.now += 60
    ledger.tick(1, [60.0])
    ledger.rollouts_came()
    before = ledger.total_start_up
    assert before is not None
    clock.now += 5
    ledger.tick(2, [65.0])
    assert ledger.total_start_up == pytest.approx(before + 65 / 3600)
    assert ledger.num_devices == 3


@settings(max_examples=100)
@given(waits=st.lists(st.floats(0, 1e4), min_size=1, max_size=20), came=st.integers(0, 19))
def test_a_start_up_is_never_more_than_all_that_was_spent(
    waits: list[float], came: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    clock, told = Clock(), 0.0
    ledger = clock.ledger(tmp_path_factory.mktemp("c") / "compute.json")
    ledger.start(1, {GENERATOR: 0.1, TRAINER: 0.2}, start_up=0.25)
    for place, seconds in enumerate(waits):
        clock.now += seconds
        ledger.tick(2)
        if place == came:
            ledger.rollouts_came()
        start_up = ledger.total_start_up
        assert told <= start_up <= ledger.total_state
        told = start_up


def test_a_checkpoint_that_lacks_a_field_is_damaged_and_one_of_a_later_release_is_refused() -> None:
    whole = Progress(step=5).as_json()
    with pytest.raises(MalformedProgress, match="lacks start_up"):
        Progress.from_json({name: value for name, value in whole.items() if name != "start_up"})
    with pytest.raises(
        UserError,
        match="checkpoint: holds tomorrow, which this Rollcast does not know; resume with",
    ):
        Progress.from_json({**whole, "tomorrow": 1})


def test_a_checkpoint_without_rules_is_of_the_first_and_one_of_newer_rules_is_refused() -> None:
    whole = Progress(step=5).as_json()
    assert (whole["split_rules"], whole["grading_rules"]) == (SPLIT_RULES, GRADING_RULES)
    earlier = Progress.from_json(
        {name: value for name, value in whole.items() if not name.endswith("_rules")}
    )
    assert (earlier.step, earlier.split_rules, earlier.grading_rules) == (5, 1, 1)
    for name in ("split_rules", "grading_rules"):
        with pytest.raises(
            UserError,
            match=f"checkpoint: {name} is 99, and this Rollcast knows 2 at most; resume with",
        ):
            Progress.from_json({**whole, name: 99})
        with pytest.raises(MalformedProgress, match=name):
            Progress.from_json({**whole, name: 0})


def test_a_resumed_run_saves_its_own_split_and_the_newest_grading(tmp_path: Path) -> None:
    state = make_state(tmp_path, progress=Progress(split_rules=1, grading_rules=1))
    saved = state.progress_to_save()
    assert (saved.split_rules, saved.grading_rules) == (1, GRADING_RULES)


def test_a_teachers_devices_are_part_of_the_compute_and_outlive_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "compute.json"
    ledger = replace(clock.ledger(path), teacher_devices=4)
    ledger.start(1, None, start_up=0.0)
    ledger.tick(2)
    clock.now += 3600
    ledger.tick(2)
    assert ledger.state == {"generator": 2.0, "trainer": 1.0, "teacher": 4.0}
    assert ledger.total_state == 7.0
    assert ledger.num_devices == 7
    ledger.save()
    clock.now += 360  # the trainer is away: generators and the teacher's server are not
    second = replace(clock.ledger(path), teacher_devices=4)
    second.start(1, json.loads(json.dumps(ledger.state)), start_up=0.0)
    assert second.spent == pytest.approx({"generator": 2.2, "trainer": 1.0, "teacher": 4.4})
    assert second.state == ledger.state
    second.tick(0)
    clock.now += 3600
    second.tick(0)
    assert second.state["teacher"] == pytest.approx(8.0)


def test_a_run_without_a_counted_teacher_has_no_such_role(tmp_path: Path) -> None:
    """So that its files are read by other releases."""
    clock = Clock()
    ledger = clock.ledger(tmp_path / "compute.json")
    ledger.start(1, None, start_up=0.0)
    ledger.tick(1)
    ledger.save()
    assert (
        set(ledger.state)
        == set(json.loads((tmp_path / "compute.json").read_text())["spent"])
        == {GENERATOR, TRAINER}
    )


def test_a_teacher_that_comes_with_a_resumed_run_counts_from_there(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "compute.json"
    first = clock.ledger(path)
    first.start(1, None, start_up=0.0)
    first.tick(0)
    first.save()
    second = replace(clock.ledger(path), teacher_devices=2)
    second.start(1, dict(first.state), start_up=0.0)
    second.tick(0)
    clock.now += 3600
    second.tick(0)
    assert second.state == pytest.approx({"generator": 0.0, "trainer": 1.0, "teacher": 2.0})
