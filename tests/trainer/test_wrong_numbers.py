"""Numbers that go wrong, each made to happen in a real learner: what is skipped, what ends the
trainer, and what the next one goes on from.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rollcast.config.errors import (
    EXIT_FAILED,
    EXIT_USER_ERROR,
    FailedAgainError,
    UserError,
    WrongNumbersError,
)
from rollcast.rollouts.base import TrainerQueue
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.prometheus_reader import parse_page
from rollcast.trainer.control.number_guard import WRONG_NUMBERS, NumberGuard
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.control.state import SurvivingHistory
from rollcast.trainer.learner import saving
from rollcast.trainer.learner.checkpoint import DamagedCheckpoint
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.number_checks import distant_ranks, odd_ranks
from rollcast.trainer.learner.ranks import Ranks
from rollcast.wire.version import PolicyVersion
from testkit.forked_programs import ForkedPrograms
from testkit.rollouts.memory import MemoryBroker, MemoryTrainerQueue
from testkit.tiny_model import make_tiny_model
from testkit.trainer.recorded_run import WatchedLearners, make_recorded_run, recorded_config
from testkit.trainer.states import make_state
from tests.trainer.gloo_ranks import run_ranks
from tests.trainer.tiny_models import make_config, make_sequences

OVERFLOWING = """
from pathlib import Path


def loss(inputs):
    terms = inputs.advantages * inputs.logprobs
    if Path(__file__).with_name("spoilt").exists():
        terms = 3e38 * (inputs.logprobs - inputs.logprobs.detach())
    return terms
"""
"""Finite terms with finite gradients at the log-probs, whose gradient at the weights overflows."""


def exported(exporter: Exporter, name: str) -> float | None:
    samples = parse_page(exporter.render().decode())
    return next((sample.value for sample in samples if sample.name == name), None)


def test_three_skipped_batches_end_the_trainer_and_a_second_time_for_good(
    tmp_path: Path, ranks: Ranks
) -> None:
    make_tiny_model(tmp_path / "model", hidden=32, max_length=128)
    (tmp_path / "mine.py").write_text(OVERFLOWING)
    config = recorded_config(
        tmp_path / "model",
        tmp_path / "runs",
        steps=4,
        recipe={
            **recorded_config(tmp_path / "model", tmp_path).recipe.model_dump(exclude_unset=True),
            "loss": {"kind": "python", "function": f"{tmp_path}/mine.py:loss"},
        },
        trainer={"checkpoint_every_steps": 1, "tokens_per_micro_batch": 120},
        record={"every_steps": None},
    )
    broker = MemoryBroker()

    def spoil_the_third(learners: WatchedLearners, version_step: int) -> None:
        if version_step == 2:
            (tmp_path / "spoilt").touch()

    first = Exporter("first")
    with pytest.raises(WrongNumbersError, match="not finite in 3 batches in a row") as failed:
        make_recorded_run(config, ranks, before_step=spoil_the_third, broker=broker, exporter=first)
    assert failed.value.exit_code == EXIT_FAILED
    assert exported(first, "rollcast_updates_skipped_total") == 3
    assert exported(first, "rollcast_wrong_numbers_timestamp_seconds") is None
    again = Exporter("again")
    with pytest.raises(FailedAgainError, match=r"came no step further than 2: fix") as failed_again:
        make_recorded_run(config, ranks, broker=broker, exporter=again)
    assert failed_again.value.exit_code == 77
    assert exported(again, "rollcast_wrong_numbers_timestamp_seconds")
    (tmp_path / "spoilt").unlink()
    controller = make_recorded_run(config, ranks, broker=broker)
    assert controller.state.history.earlier == ((1, 2),)  # the second one made no checkpoint
    assert controller.state.version == PolicyVersion(3, 4)


@pytest.mark.parametrize("where", ["weight", "moment"])
def test_numbers_that_are_not_finite_are_neither_published_nor_saved(
    untied_model: Path, tmp_path: Path, ranks: Ranks, where: str
) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    group.update(make_sequences(0))
    group.save(PolicyVersion(1, 1), {}).result()
    weight = group.learner.weights[-1]
    moment = group.learner.optimizer.state[weight]["exp_avg_sq"]
    spoilt = weight if where == "weight" else moment
    with torch.no_grad():
        spoilt.to_local().view(-1)[-1] = math.inf if where == "weight" else math.nan
    if where == "weight":
        with pytest.raises(WrongNumbersError, match=r"^weights are not finite, .* not published"):
            group.stage(0, PolicyVersion(1, 2))
    else:
        group.stage(0, PolicyVersion(1, 2))
    with pytest.raises(WrongNumbersError, match=r"moments are not finite, .* not saved"):
        group.save(PolicyVersion(1, 2), {})
    folder = group.config.run_folder / "checkpoints"
    assert [path.name for path in folder.iterdir()] == ["1.1"]


def test_a_checkpoint_that_is_not_finite_counts_as_damaged(
    untied_model: Path, tmp_path: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of a release that did not look."""
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    group.update(make_sequences(0))
    older = group.save(PolicyVersion(1, 1), {}).result()
    with torch.no_grad():
        group.learner.weights[0].to_local().view(-1)[0] = math.nan
    monkeypatch.setattr(saving, "check_finite", lambda *arguments: None)
    newer = group.save(PolicyVersion(1, 2), {}).result()
    with pytest.raises(DamagedCheckpoint, match="its numbers are not finite"):
        group.restore(newer)
    group.restore(older)
    assert all(bool(weight.to_local().isfinite().all()) for weight in group.learner.weights)
    with pytest.raises(DamagedCheckpoint, match="its numbers are not finite"):
        group.take_weights(newer)  # of another run, `model.from_run`


def test_a_model_whose_weights_are_not_finite_is_the_users_mistake(
    tmp_path: Path, ranks: Ranks
) -> None:
    make_tiny_model(tmp_path / "model", hidden=32, max_length=128)
    file = tmp_path / "model/model.safetensors"
    weights = load_file(file)
    weights["model.norm.weight"][0] = math.nan
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(UserError, match=r"^model\.path: .* not finite") as failed:
        make_recorded_run(recorded_config(tmp_path / "model", tmp_path / "runs"), ranks)
    assert failed.value.exit_code == EXIT_USER_ERROR


def test_a_spike_is_clipped_and_counted(untied_model: Path, tmp_path: Path, ranks: Ranks) -> None:
    learner = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    exporter = Exporter("r")
    queue: TrainerQueue = MemoryTrainerQueue(MemoryBroker())
    guard = NumberGuard(make_state(), queue, exporter, 1.0)
    name = "rollcast_gradient_spikes_total"
    for seed in range(16):
        guard.note(learner.update(make_sequences(seed)))
    assert exported(exporter, name) == 0
    spoilt = [
        replace(sequence, advantage=1e4 * sequence.advantage) for sequence in make_sequences(16)
    ]
    stats = learner.update(spoilt)
    guard.note(stats)
    assert stats.applied
    assert exported(exporter, name) == 1


@pytest.mark.parametrize("text", [b"", b"3", b"a b 0", b"[[[[", b"1 2", b"\xff \xfe \xfd"])
def test_what_no_trainer_wrote_is_no_failure(text: bytes) -> None:
    queue = MemoryTrainerQueue(MemoryBroker())
    queue.set_state(WRONG_NUMBERS, text)
    error = WrongNumbersError("weights are not finite")
    assert NumberGuard(make_state(), queue, Exporter("r"), 1.0).judge(error) is error


def fail(queue: TrainerQueue, incarnation: int, step: int) -> type[UserError]:
    """Kind of error with which an incarnation ends that fails at this step."""
    history = SurvivingHistory((), incarnation)
    guard = NumberGuard(
        make_state(history=history, progress=Progress(step=step)), queue, Exporter("r"), 1.0
    )
    return type(guard.judge(WrongNumbersError("weights are not finite")))


def test_only_the_restart_right_after_a_failure_fails_again() -> None:
    queue = MemoryTrainerQueue(MemoryBroker())
    assert fail(queue, 1, 50) is WrongNumbersError
    assert fail(queue, 2, 51) is WrongNumbersError  # further on
    assert fail(queue, 3, 40) is FailedAgainError
    # A user has resumed it with something changed, so that it has a restart once more.
    assert fail(queue, 4, 40) is WrongNumbersError
    # Number 5 went on and was stopped. A user has gone back to step 10, or begun another run.
    assert fail(queue, 6, 10) is WrongNumbersError
    assert fail(queue, 7, 10) is FailedAgainError


@pytest.mark.parametrize(
    ("values", "distant"),
    [
        ([1.0, 1.01, 1.02], []),
        ([1.0, 1.0, 1.2], [2]),
        ([1.0, 1.2], [0, 1]),
        ([1.0, 1.0, math.nan], [2]),
        ([1.0, -math.inf], [1]),
        # On no rank: the weights are not finite, and no device is faulty
        ([math.nan, math.nan], []),
    ],
)
def test_a_rank_without_finite_logprobs_is_named_alone(
    values: list[float], distant: list[int]
) -> None:
    logprobs = torch.tensor(values, dtype=torch.float64)[:, None].expand(-1, 63)
    assert distant_ranks(logprobs) == distant


@pytest.mark.parametrize(
    ("words", "odd"),
    [([5, 5, 5], []), ([5, 5, 6], [2]), ([5, 6], [0, 1]), ([5, 5, 6, 6], [0, 1, 2, 3])],
)
def test_the_rank_that_most_others_contradict_is_the_odd_one(
    words: list[int], odd: list[int]
) -> None:
    assert odd_ranks(range(len(words)), words.__getitem__) == odd


def test_ranks_that_differ_are_named_with_the_part(
    trainers: ForkedPrograms, untied_model: Path, tmp_path: Path
) -> None:
    run_ranks(trainers, tmp_path, "tests.trainer.differing_ranks", untied_model, tmp_path)
    heard = torch.load(tmp_path / "heard.pt")
    equal, in_buffer, mended = heard["shards"]
    assert equal == mended == ""
    assert in_buffer.startswith("ranks 0, 1 differ in the log-probs of the same tokens, which")
    equal, in_row = heard["replicas"]
    assert equal == ""
    assert in_row.startswith("ranks 0, 1 differ in the weight lm_head.weight, which must be equal")
