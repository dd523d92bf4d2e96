"""What a controller that continues a run takes over, asks again and gives up."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

from rollcast.config.recipe import PipelineSchedule
from rollcast.config.run import RunConfig
from rollcast.config.run_end import StopWhen
from rollcast.curves.columns.choices import Columns
from rollcast.curves.curve_source import read_curve
from rollcast.curves.evaluations import EvaluationLog
from rollcast.curves.sources.metrics_page import interpret
from rollcast.curves.sources.run_folder import RunFolder
from rollcast.local.status import StatusReader
from rollcast.telemetry import trainer_metrics
from rollcast.telemetry.prometheus_reader import parse_page
from rollcast.trainer.control.controller import Controller
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.ending import TrainerEnding
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.memory import MemoryBroker
from testkit.system.audit import check_every_task_once
from testkit.trainer.quick_control import (
    AnsweringQueue,
    Answers,
    QuickLearners,
    lines,
    make_config,
    make_controller,
    run,
)


def started_from(controller: Controller) -> dict[str, float]:
    """What its page tells of the steps that incarnations began with."""
    samples = parse_page(controller._reporter._exporter.render().decode())
    return {
        sample.labels["incarnation"]: sample.value
        for sample in samples
        if sample.name == trainer_metrics.INCARNATION_START.name
    }


def test_an_owed_prompt_that_is_the_last_one_is_trained_on(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path), MemoryBroker()
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(0))
    controller = make_controller(config, AnsweringQueue(broker, answers), answers, QuickLearners())
    for number in range(22):
        controller.state.curriculum.observe(f"p{number}", reward=3, graded=3, sampled=3)
    controller.state.ledger.owed = ["p3"]
    controller._step_or_wait()
    assert list(controller.state.ledger.outstanding.values()) == ["p3"]
    assert not controller._has_ended(), "it was dispatched a moment ago"


def killed_at_9_and_resumed_at_6(config: RunConfig) -> tuple[Controller, Controller]:
    """Both incarnations.

    The checkpoint of step 6 was written before the evaluation of step 6 was answered.
    """
    broker = MemoryBroker()
    answers = Answers(0.4, PolicyVersion(1, 0), random.Random(3))
    learners = QuickLearners()
    first = make_controller(config, AnsweringQueue(broker, answers), answers, learners)
    first._reporter.record_start()
    first.state.compute.start(1, None, start_up=0.0)
    killed = False

    def kill(*_: Any) -> Any:
        nonlocal killed
        killed = True
        raise KeyboardInterrupt

    learners.save = lambda version, state: (  # type: ignore[method-assign]
        kill() if version.step == 9 else QuickLearners.save(learners, version, state)
    )
    with contextlib.suppress(KeyboardInterrupt):
        run(first, answers)
    assert killed
    del learners.save
    progress = Progress.from_json(learners.saved["1.6"])
    second = make_controller(
        config, AnsweringQueue(broker, answers), answers, learners, progress=progress
    )
    second._reporter.record_start()
    assert started_from(first) == {"1": 0.0}
    assert started_from(second) == {"2": 6.0}
    second.state.compute.start(1, progress.compute_state, start_up=progress.start_up)
    assert second.state.version == PolicyVersion(2, 6)
    assert run(second, answers) is TrainerEnding.FINISHED
    return first, second


def test_a_restart_from_a_checkpoint_settles_every_task_once(tmp_path: Path) -> None:
    config = make_config(tmp_path, steps=14)
    killed_at_9_and_resumed_at_6(config)
    steps = [line["step"] for line in lines(config, "steps.jsonl")]
    assert steps == [*range(1, 10), *range(7, 15)]
    check_every_task_once(lines(config, "tasks.jsonl"))


def test_an_evaluation_that_was_made_twice_is_one_point_for_every_reader(tmp_path: Path) -> None:
    config = make_config(tmp_path, steps=14).model_copy(update={"stop_when": StopWhen()})
    first, second = killed_at_9_and_resumed_at_6(config)
    written = [(line["incarnation"], line["step"]) for line in lines(config, "evaluations.jsonl")]
    assert written == [(1, 0), (1, 2), (1, 4), (1, 6), *((2, step) for step in range(6, 15, 2))]
    expected = [(1, 0), (1, 2), (1, 4), *((2, step) for step in range(6, 15, 2))]

    pages = [
        interpret(parse_page(one._reporter._exporter.render().decode()), at=0.0)
        for one in (first, second)
    ]
    folder = RunFolder(config.run_folder, config.run).read()
    for readings in (pages, [folder], [*pages, folder]):
        log = EvaluationLog()
        for reading in readings:
            log.starts |= reading.starts.get(config.run, {})
            for item in reading.evaluations:
                log.add(item)
        assert [(item.incarnation, item.step) for item in log.sorted_out().curve_points] == expected
    assert [
        (point.incarnation, point.step) for point in StatusReader(config).read().evaluations
    ] == expected
    rates = {
        (line["incarnation"], line["step"]): line["pass_rate"]
        for line in lines(config, "evaluations.jsonl")
    }
    curve = read_curve(str(config.run_folder / "evaluations.jsonl"), Columns(), None)
    assert [curve.initial, *curve.pass_rate] == [rates[version] for version in expected]
    assert [(point[0], point[1]) for point in second.state.progress.curve] == [
        (version[1], rates[version]) for version in expected
    ]


def test_the_readings_by_which_the_best_checkpoint_is_kept_survive_a_restart(
    tmp_path: Path,
) -> None:
    config = make_config(tmp_path, steps=14)
    _, second = killed_at_9_and_resumed_at_6(config)
    assert [row[0] for row in second.state.progress.curve] == [*range(0, 15, 2)]


def test_the_last_evaluation_is_asked_again_where_redis_lost_it(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path, steps=4), MemoryBroker()
    answers = Answers(0.4, PolicyVersion(1, 0), random.Random(4))
    queue = AnsweringQueue(broker, answers)
    queue.lost_evaluation = 4
    controller = make_controller(config, queue, answers, QuickLearners())
    assert run(controller, answers) is TrainerEnding.FINISHED
    assert queue.lost_evaluation is None
    assert lines(config, "evaluations.jsonl")[-1]["step"] == 4


def test_a_resume_with_a_smaller_window_gives_up_what_it_cannot_use_and_dispatches_it_in_time(
    tmp_path: Path,
) -> None:
    config, broker = make_config(tmp_path, steps=16), MemoryBroker()
    answers = Answers(0.4, PolicyVersion(1, 0), random.Random(5))
    learners, queue = QuickLearners(), AnsweringQueue(broker, answers)
    first = make_controller(config, queue, answers, learners)

    def stop_with_many_under_way() -> bool:
        answers.version = first.state.version
        queue.silent = first.state.version.step >= 5
        return len(first.state.ledger.outstanding) > 4 and queue.silent

    first._stop_requested = stop_with_many_under_way
    assert first.run() is TrainerEnding.INTERRUPTED
    checkpoint, stopped = learners.saved[str(first.state.version)], first.state.version.step
    assert len(checkpoint["ledger"]["outstanding"]) > 4, "more than the window of k = 1 holds"

    recipe = config.recipe.model_copy(update={"schedule": PipelineSchedule(max_staleness=1)})
    narrow = config.model_copy(update={"recipe": recipe})
    progress = Progress.from_json(checkpoint)
    second = make_controller(narrow, queue, answers, learners, progress=progress)
    second._reporter.record_start()

    def answer_after_the_first_look() -> bool:
        answers.version = second.state.version
        queue.silent = not second.state.ledger.owed and second.state.version.step == stopped
        return False

    second._stop_requested = answer_after_the_first_look
    assert second.run() is TrainerEnding.FINISHED
    outcomes = check_every_task_once(lines(config, "tasks.jsonl"))
    assert outcomes["stale"] == len(checkpoint["ledger"]["outstanding"]) - 4
    assert second.state.ledger.owed == [], "what was given up was dispatched again"
    resumed = [line for line in lines(config, "steps.jsonl") if line["step"] > stopped]
    assert max(int(age) for line in resumed for age in line["staleness_tokens"]) <= 1
