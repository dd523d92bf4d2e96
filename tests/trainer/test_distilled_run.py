"""A whole run of the controller with a teacher behind an endpoint: steps, records, metrics and
compute.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.distillation import Distillation, EndpointTeacher
from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.runfolder.files import COMPUTE, EVALUATIONS, STEPS
from rollcast.trainer.control.controller import Controller
from rollcast.trainer.ending import TrainerEnding
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.memory import MemoryBroker
from testkit.trainer.quick_control import (
    AnsweringQueue,
    Answers,
    QuickLearners,
    lines,
    make_config,
    make_controller,
    run,
)
from tests.trainer.teacher_server import Answer, Behaviour, teacher_server, working

NUM_STEPS = 6


class Rememberers(QuickLearners):
    """Keeps the sequences of every update."""

    def __init__(self) -> None:
        super().__init__()
        self.updates: list[list[Any]] = []

    def update(self, sequences: list[Any], between: Any) -> Any:
        self.updates.append(list(sequences))
        return super().update(sequences, between)


def run_with(
    behaviour: Behaviour, folder: Path, pass_rate: float
) -> tuple[RunConfig, Rememberers, TrainerEnding, Controller]:
    config = make_config(folder, steps=NUM_STEPS)
    with teacher_server(behaviour) as url:
        teacher = EndpointTeacher(url=url, model="t", devices=3, deadline_seconds=20.0)
        recipe = config.recipe.model_copy(update={"distillation": Distillation(teacher=teacher)})
        config = config.model_copy(update={"recipe": recipe})
        answers = Answers(pass_rate, PolicyVersion(0, 0), random.Random(1))
        learners = Rememberers()
        controller = make_controller(
            config, AnsweringQueue(MemoryBroker(), answers), answers, learners
        )
        controller.start()
        try:
            ending = run(controller, answers)
        finally:
            controller.close()
    return config, learners, ending, controller


@pytest.mark.timeout(60)
def test_a_run_trains_on_the_teachers_word_alone(tmp_path: Path) -> None:
    """Every answer is wrong, so that rewards alone would make no step."""
    config, learners, ending, _ = run_with(working, tmp_path, pass_rate=0.0)
    assert ending is TrainerEnding.FINISHED
    assert len(learners.updates) == NUM_STEPS
    sequences = [sequence for update in learners.updates for sequence in update]
    assert len(sequences) == NUM_STEPS * 4 * 3, "no group is filtered"
    assert all(sequence.token_advantages is not None for sequence in sequences)
    records = lines(config, STEPS)
    assert all(record["teacher_kl"] is not None for record in records)
    assert lines(config, EVALUATIONS)[-1]["devices"] >= 4, "the trainer's and the teacher's"
    compute = json.loads((config.run_folder / COMPUTE).read_text())
    assert compute["spent"]["teacher"] == pytest.approx(3 * compute["spent"]["trainer"], rel=0.5)


@pytest.mark.timeout(60)
def test_right_answers_remove_no_prompt_from_what_a_teacher_alone_judges(tmp_path: Path) -> None:
    *_, ending, controller = run_with(working, tmp_path, pass_rate=1.0)
    assert ending is TrainerEnding.FINISHED
    assert controller.state.curriculum.num_removed == 0


@pytest.mark.timeout(60)
def test_a_run_ends_when_its_teacher_answers_nothing_any_more(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"8 groups in a row got no answer.* answers with status 400"
    ):
        run_with(lambda *_: (400, b""), tmp_path, pass_rate=0.5)


@pytest.mark.timeout(60)
def test_what_the_teacher_does_not_answer_is_missing_from_the_batch(tmp_path: Path) -> None:
    def behaviour(path: str, body: dict[str, Any]) -> Answer:
        half_of_the_rollouts = sum(body["prompt"]) % 2
        return (400, b"") if half_of_the_rollouts else working(path, body)

    _, learners, ending, _ = run_with(behaviour, tmp_path, pass_rate=0.5)
    assert ending is TrainerEnding.FINISHED
    trained = sum(len(update) for update in learners.updates)
    assert 0 < trained < NUM_STEPS * 4 * 3
