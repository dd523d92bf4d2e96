"""The curves' points against plain arithmetic and repeated sampling; when each is asked for."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.config.run import parse_run_config
from rollcast.rollouts.records import (
    GradingStatus,
)
from rollcast.telemetry import evaluation_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.prometheus_reader import parse_page
from rollcast.trainer.control.evaluation import (
    EvaluationPlan,
    OpenEvaluations,
    evaluation_plans,
)
from rollcast.trainer.control.standard_errors import (
    clustered_standard_error,
    sampling_standard_error,
)
from rollcast.trainer.control.telemetry import EvaluationSeries, export_lost_prompts
from tests.trainer.evaluating import ask, make_group, points


def test_time_without_a_generator_does_not_count_and_an_empty_evaluation_is_told() -> None:
    now = [0.0]
    open_evaluations = OpenEvaluations("run", deadline_seconds=10, clock=lambda: now[0])
    ask(open_evaluations, range(3))
    now[0] = 1_000.0
    assert open_evaluations.close_finished(generators=False) == []
    now[0] = 1_009.0
    assert open_evaluations.close_finished(generators=True) == []
    now[0] = 1_011.0
    (closed,) = open_evaluations.close_finished(generators=True)
    assert (closed.step, closed.evaluation, closed.unanswered) == (7, None, [0, 1, 2])


def test_mean_of_prompt_means_and_version_span() -> None:
    open_evaluations = OpenEvaluations("run", deadline_seconds=60)
    ask(open_evaluations, range(2))
    assert open_evaluations.add(make_group(0, [1, 1, 0, 0]))
    assert open_evaluations.close_finished(generators=True) == []
    assert open_evaluations.unanswered_tasks().keys() == {1}
    assert open_evaluations.add(make_group(1, [1, 1, 1, 1]))
    assert not open_evaluations.add(make_group(1, [0, 0, 0, 0])), "an answer counts once"
    (point,) = points(open_evaluations)
    assert point.pass_rate == pytest.approx(0.75)
    assert (point.samples, point.num_prompts, point.missing_prompts, point.generated_tokens) == (
        8,
        2,
        0,
        24,
    )
    assert (point.version_min, point.version_max) == ("1.0", "1.1")
    assert not open_evaluations.pending


def test_grader_failures_are_neither_right_nor_wrong() -> None:
    open_evaluations = OpenEvaluations("run", deadline_seconds=60)
    ask(open_evaluations, range(2))
    open_evaluations.add(make_group(0, [1, 0]))
    open_evaluations.add(make_group(1, [0, 0], GradingStatus.ERROR))
    (point,) = points(open_evaluations)
    assert point.pass_rate == pytest.approx(0.5)
    assert (point.samples, point.timed_out, point.ungraded) == (2, 0, 2)


def test_what_a_grader_hung_at_is_left_out_and_counted_as_such() -> None:
    """Nobody knows whether it is right: the curve must not move with the parser."""
    open_evaluations = OpenEvaluations("run", deadline_seconds=60)
    ask(open_evaluations, range(2))
    group = make_group(0, [1, 0, 0, 0])
    for rollout, failed in zip(
        group.rollouts[2:], (GradingStatus.TIMEOUT, GradingStatus.ERROR), strict=True
    ):
        rollout.grading_status = failed
    open_evaluations.add(group)
    open_evaluations.add(make_group(1, [0, 0], GradingStatus.TIMEOUT))
    (point,) = points(open_evaluations)
    assert point.pass_rate == pytest.approx(1 / 2)
    assert (point.samples, point.num_prompts, point.timed_out, point.ungraded) == (2, 1, 3, 4)


def test_deadline_closes_with_what_came() -> None:
    now = [0.0]
    open_evaluations = OpenEvaluations("run", deadline_seconds=10, clock=lambda: now[0])
    ask(open_evaluations, range(3))
    open_evaluations.add(make_group(0, [1, 0]))
    now[0] = 11.0
    (point,) = points(open_evaluations)
    assert (point.num_prompts, point.missing_prompts) == (1, 2)


def test_prompts_that_are_given_up_are_not_waited_for_and_count_as_missing() -> None:
    open_evaluations = OpenEvaluations("run", deadline_seconds=1e9)
    ask(open_evaluations, range(3))
    open_evaluations.add(make_group(0, [1, 1]))
    assert not open_evaluations.note_failures(1, 3)
    assert open_evaluations.unanswered_tasks().keys() == {2}
    assert not open_evaluations.note_failures(2, 3)
    (point,) = points(open_evaluations)
    assert (point.pass_rate, point.num_prompts, point.asked_prompts) == (1.0, 1, 3)
    assert (point.missing_prompts, point.given_up_prompts) == (2, 2)
    assert point.graded_share == pytest.approx(1 / 3)


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from(["right", "ungraded", "given up", "late"]), min_size=1, max_size=12)
)
def test_every_prompt_of_an_evaluation_is_accounted_for(fates: list[str]) -> None:
    now = [0.0]
    open_evaluations = OpenEvaluations("run", deadline_seconds=10, clock=lambda: now[0])
    ask(open_evaluations, range(len(fates)))
    for sequence, fate in enumerate(fates):
        if fate == "right":
            open_evaluations.add(make_group(sequence, [1, 0]))
        elif fate == "ungraded":
            open_evaluations.add(make_group(sequence, [0, 0], GradingStatus.TIMEOUT))
        elif fate == "given up":
            open_evaluations.note_failures(sequence, 3)
    now[0] = 11.0
    found = points(open_evaluations)
    if "right" not in fates:
        assert found == []
        return
    (point,) = found
    assert (point.num_prompts, point.asked_prompts) == (fates.count("right"), len(fates))
    assert (point.missing_prompts, point.given_up_prompts) == (
        fates.count("given up") + fates.count("late"),
        fates.count("given up"),
    )
    assert point.graded_share == pytest.approx(fates.count("right") / len(fates))
    exporter = Exporter("run")
    export_lost_prompts(exporter, point)
    lost = {
        item.labels["reason"]: item.value
        for item in parse_page(exporter.render().decode())
        if item.name == evaluation_metrics.EVAL_PROMPTS_LOST.name
    }
    fate_of = {"given_up": "given up", "deadline": "late", "no_verdict": "ungraded"}
    assert lost == {reason: fates.count(fate) for reason, fate in fate_of.items()}


def test_standard_error_is_the_spread_of_repeated_samplings() -> None:
    rng = np.random.default_rng(0)
    rates = rng.beta(1.0, 1.0, size=60)

    def sample() -> list[np.ndarray]:
        return [(rng.random(4) < rate).astype(np.float64) for rate in rates]

    means = [np.mean([values.mean() for values in sample()]) for _ in range(4_000)]
    claimed = np.sqrt(np.mean([sampling_standard_error(sample()) ** 2 for _ in range(400)]))
    assert claimed == pytest.approx(np.std(means), rel=0.05)


ERRORS: list[tuple[list[list[float]], float]] = [
    # Rewards of each prompt's completions -> the standard error of their mean
    ([[1.0], [0.0]] * 50, 0.5 / 10),
    ([[1.0]] * 30 + [[0.0]] * 70, 0.21**0.5 / 10),
    ([[0.4], [0.6]] * 50, 0.1 / 10),
    ([[0.44], [0.56]] * 50, 0.06 / 10),
    ([[0.5]] * 100, 0.0),
    ([[0.0]] * 100, 0.0),
    ([[0.25], [0.75]] * 50, 0.25 / 10),
    ([[0.9], [1.0]] * 50, 0.05 / 10),
    ([[1.0, 0.0]] * 50, (0.5 / 2 / 50) ** 0.5),
    ([[0.4, 0.6]] * 50, (0.02 / 2 / 50) ** 0.5),
    ([[1.0, 0.0]] * 50 + [[1.0], [0.0]] * 25, (50 * 0.25 + 50 * 0.25) ** 0.5 / 100),
    ([[0.5]], 0.5),
]


@pytest.mark.parametrize(("rewards", "error"), ERRORS)
def test_one_completion_a_prompt_varies_as_its_rewards_do(
    rewards: list[list[float]], error: float
) -> None:
    assert sampling_standard_error([np.array(values) for values in rewards]) == pytest.approx(error)


def test_the_error_of_partial_rewards_with_one_completion_is_no_less_than_their_spread() -> None:
    rng = np.random.default_rng(0)
    rates = rng.uniform(0.45, 0.55, size=60)

    def sample() -> list[np.ndarray]:
        return [np.clip(rng.normal(rate, 0.06, 1), 0.0, 1.0) for rate in rates]

    spread = np.std([np.mean([values.mean() for values in sample()]) for _ in range(2_000)])
    claimed = np.mean([sampling_standard_error(sample()) for _ in range(200)])
    assert spread < claimed < 1.3 * spread


def test_the_error_for_new_prompts_is_the_spread_over_draws_of_prompts() -> None:
    """Prompts are drawn again as well, so that their own differences count."""
    rng = np.random.default_rng(0)

    def sample() -> list[np.ndarray]:
        return [(rng.random(4) < rate).astype(np.float64) for rate in rng.beta(0.5, 0.5, size=40)]

    means = [np.mean([values.mean() for values in sample()]) for _ in range(4_000)]
    claimed = [clustered_standard_error(sample()) or 0.0 for _ in range(400)]
    assert np.sqrt(np.mean(np.square(claimed))) == pytest.approx(np.std(means), rel=0.05)
    assert np.mean([sampling_standard_error(sample()) for _ in range(400)]) < 0.8 * np.std(means)


def test_one_prompt_tells_nothing_of_others() -> None:
    assert clustered_standard_error([np.array([0.0, 1.0])]) is None


MIXED = EvaluationPlan("both", 10, 2, {"a": 3.0, "b": 1.0})


def test_the_whole_of_a_mixture_is_the_weighted_mean_of_its_parts() -> None:
    """Part b has more prompts and less weight: their plain mean would be another number."""
    open_evaluations = OpenEvaluations("run", deadline_seconds=60)
    ask(open_evaluations, range(4), MIXED, datasets="abbb")
    answers: list[list[float]] = [[1, 1, 1, 0], [0, 0, 0, 1], [0, 0, 1, 1], [0, 0, 0, 0]]
    for sequence, rewards in enumerate(answers):
        open_evaluations.add(make_group(sequence, rewards, dataset="ab"[sequence > 0]))
    (closed,) = open_evaluations.close_finished(generators=True)
    whole = closed.evaluation
    assert whole is not None
    of_a, of_b = closed.parts
    assert (of_a.dataset, of_b.dataset, whole.dataset, closed.dataset) == (
        "part:a",
        "part:b",
        "both",
        "both",
    )
    assert (of_a.pass_rate, of_b.pass_rate) == (pytest.approx(3 / 4), pytest.approx(1 / 4))
    assert whole.pass_rate == pytest.approx(0.75 * 3 / 4 + 0.25 * 1 / 4)
    assert of_a.standard_error is not None
    assert of_b.standard_error is not None
    expected = np.hypot(0.75 * of_a.standard_error, 0.25 * of_b.standard_error)
    assert whole.standard_error == pytest.approx(expected)
    assert of_b.standard_error_new_prompts == pytest.approx(
        np.std([0.25, 0.5, 0.0], ddof=1) / 3**0.5
    )
    assert whole.standard_error_new_prompts is None, "part a has one prompt"
    for field in (
        "samples",
        "num_prompts",
        "generated_tokens",
        "missing_prompts",
        "asked_prompts",
        "ungraded",
    ):
        assert getattr(whole, field) == getattr(of_a, field) + getattr(of_b, field)
    assert (of_a.num_prompts, of_b.num_prompts) == (1, 3)


def test_the_standard_error_of_a_mixture_is_the_spread_of_repeated_samplings() -> None:
    rng = np.random.default_rng(0)
    rates = {"a": rng.beta(1.0, 1.0, size=10), "b": rng.beta(2.0, 1.0, size=30)}
    values, errors = [], []
    for _ in range(300):
        open_evaluations = OpenEvaluations("run", deadline_seconds=60)
        ask(open_evaluations, range(40), MIXED, datasets="a" * 10 + "b" * 30)
        for sequence, rate in enumerate([*rates["a"], *rates["b"]]):
            open_evaluations.add(
                make_group(sequence, (rng.random(4) < rate).astype(float).tolist())
            )
        (closed,) = open_evaluations.close_finished(generators=True)
        assert closed.evaluation is not None
        values.append(closed.evaluation.pass_rate)
        errors.append(closed.evaluation.standard_error or 0.0)
    assert np.mean(values) == pytest.approx(
        0.75 * rates["a"].mean() + 0.25 * rates["b"].mean(), abs=0.01
    )
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(values), rel=0.15)


@pytest.mark.parametrize(
    ("environment", "verifier", "own"),
    [("maze", "", -0.5), ("chess", "", None), ("maze", "exact", None), (None, "", None)],
)
def test_the_mean_reward_is_also_on_the_scale_of_the_environment_that_gave_it(
    environment: str | None, verifier: str, own: float | None
) -> None:
    """A maze pays -2 to 4. A verifier's reward has no other scale."""
    open_evaluations = OpenEvaluations("run", 60.0, {"maze": (-2.0, 4.0), "chess": (0.0, 1.0)})
    ask(open_evaluations, range(2), environment=environment, verifier=verifier)
    open_evaluations.add(make_group(0, [0.5, 0.25]))
    open_evaluations.add(make_group(1, [0.0, 0.25]))
    (point,) = points(open_evaluations)
    assert (point.pass_rate, point.environment_reward) == (0.25, own)


def test_without_a_verdict_on_one_part_the_whole_has_no_point_and_the_other_part_has() -> None:
    now = [0.0]
    open_evaluations = OpenEvaluations("run", deadline_seconds=10, clock=lambda: now[0])
    ask(open_evaluations, range(2), MIXED, datasets="ab")
    open_evaluations.add(make_group(1, [1, 0]))
    now[0] = 11.0
    (closed,) = open_evaluations.close_finished(generators=True)
    assert closed.evaluation is None
    assert [(part.dataset, part.pass_rate) for part in closed.parts] == [("part:b", 0.5)]
    assert closed.unanswered == [0]


def test_downstream_sets_are_asked_for_at_checkpoints_or_as_often_as_they_say() -> None:
    sets: list[dict[str, Any]] = [
        {"dataset": {"kind": "countdown", "name": name, "size": 20}} for name in ("aime", "lcb")
    ]
    sets[1] |= {"every_steps": 7, "rollouts_per_prompt": 32}
    config = parse_run_config(
        {
            "run": "r",
            "model": {"path": "m"},
            "tasks": {"downstream": sets},
            "trainer": {"checkpoint_every_steps": 50},
        },
        source="test",
    )
    curve, *downstream = evaluation_plans(config.tasks, config.trainer.checkpoint_every_steps)
    assert (curve.dataset, curve.every_steps, curve.rollouts_per_prompt) == ("arithmetic", 100, 16)
    assert [(plan.dataset, plan.every_steps, plan.rollouts_per_prompt) for plan in downstream] == [
        ("downstream:aime", 50, 16),
        ("downstream:lcb", 7, 32),
    ]


@settings(max_examples=100)
@given(
    every=st.integers(1, 9), last=st.integers(0, 40), killed=st.integers(0, 40), lost=st.booleans()
)
def test_every_nth_step_is_evaluated_once_also_over_a_restart(
    every: int, last: int, killed: int, lost: bool
) -> None:
    """`lost`: the answers to the last evaluation before the kill never came."""
    plan = EvaluationPlan("d", every, 2)
    asked: list[int] = []
    evaluated = -1
    for step in range(killed + 1):
        if plan.is_due(
            step, at_start=step == 0, asked_step=max(asked, default=-1), evaluated_step=evaluated
        ):
            asked.append(step)
            evaluated = step
    assert asked == list(range(0, killed + 1, every))
    if lost:
        evaluated = asked[-2] if len(asked) > 1 else -1
    again: list[int] = []
    for step in range(killed, killed + last + 1):
        if plan.is_due(
            step,
            at_start=step == killed,
            asked_step=max(again, default=-1),
            evaluated_step=evaluated,
        ):
            again.append(step)
            evaluated = step
    wanted = [step for step in range(killed + 1, killed + last + 1) if step % every == 0]
    assert again == ([killed] if lost else []) + wanted


def test_sixteen_evaluations_of_every_data_set_stay_exposed() -> None:
    exporter = Exporter("run")
    series = EvaluationSeries(exporter)
    open_evaluations = OpenEvaluations("run", deadline_seconds=60)
    ask(open_evaluations, range(1))
    open_evaluations.add(make_group(0, [1, 0]))
    (point,) = points(open_evaluations)
    for step in range(40):
        series.show(replace(point, step=step))
        if step % 2 == 0:
            series.show(replace(point, dataset="downstream:e", step=step))
    found = re.findall(
        r'rollcast_eval_pass_rate\{dataset="([^"]+)",.*step="(\d+)"', exporter.render().decode()
    )
    assert sorted(int(step) for dataset, step in found if dataset == "d") == list(range(24, 40))
    assert sorted(int(step) for dataset, step in found if dataset == "downstream:e") == list(
        range(8, 40, 2)
    )
