"""One pass rate in training, in the report of a batch, and in evaluation; what has no verdict is in
none of them.
"""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollcast.config.recipe import Recipe
from rollcast.config.tasks import Grading
from rollcast.recipe.curriculum import Curriculum
from rollcast.rollouts.records import GradingStatus, RolloutGroup, StopReason
from rollcast.runfolder.records import EvaluationRecord
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.telemetry import trainer_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.prometheus_reader import parse_page
from rollcast.trainer.control.assembly import assemble
from rollcast.trainer.control.evaluation import OpenEvaluations
from rollcast.trainer.control.pipeline import GroupPipeline
from rollcast.trainer.control.telemetry import export_batch_statistics
from testkit.trainer.states import make_state
from tests.trainer.evaluating import ask, make_group, points

FAILED = (GradingStatus.TIMEOUT, GradingStatus.ERROR)
Outcome = tuple[float, GradingStatus | None, StopReason]
ends = st.sampled_from([StopReason.END, StopReason.LENGTH])
outcome = st.one_of(
    st.tuples(st.floats(0, 1, width=32), st.none(), ends),
    st.tuples(st.sampled_from([0.0, 1.0]), st.none(), ends),
    st.tuples(st.just(0.0), st.sampled_from(FAILED), ends),
)


def graded_group(outcomes: list[Outcome]) -> RolloutGroup:
    """Reward of each rollout, or how its grader failed, and how it ended."""
    group = make_group(0, [reward for reward, _, _ in outcomes])
    for rollout, (_, failed, stop_reason) in zip(group.rollouts, outcomes, strict=True):
        rollout.grading_status = failed or rollout.grading_status
        rollout.stop_reason = stop_reason
    return group


def told_matches(exporter: Exporter) -> float:
    """Truncated completions of training that matched, as the page counts them."""
    page = parse_page(exporter.render().decode())
    return sum(item.value for item in page if item.name == trainer_metrics.TRUNCATED_MATCHES.name)


def ended(reward: float, failed: GradingStatus | None = None) -> Outcome:
    return reward, failed, StopReason.END


def observed(group: RolloutGroup, tmp_path: Any) -> Curriculum:
    """What training remembers of the group's prompt."""
    curriculum = Curriculum([group.prompt_id, "another"], seed=0)
    no: Any = None
    state = make_state(curriculum=curriculum)
    GroupPipeline(state, no, no, no, no, no, no, Recipe(), 1 << 20, no).observe([group])
    return curriculum


def evaluated(group: RolloutGroup) -> EvaluationRecord | None:
    open_evaluations = OpenEvaluations("run", deadline_seconds=60)
    ask(open_evaluations, range(1))
    open_evaluations.add(group)
    found = points(open_evaluations)
    assert len(found) <= 1
    return found[0] if found else None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("run")


@given(outcomes=st.lists(outcome, min_size=1, max_size=16))
def test_training_the_report_of_a_batch_and_evaluation_find_the_same_pass_rate(
    folder: Any, outcomes: list[Outcome]
) -> None:
    group = graded_group(outcomes)
    verdicts = [
        (reward, stop_reason is StopReason.LENGTH)
        for reward, failed, stop_reason in outcomes
        if not failed
    ]
    rewards = [Fraction(0 if truncated else reward) for reward, truncated in verdicts]
    matches = sum(reward > 0 and truncated for reward, truncated in verdicts)
    curriculum, point = observed(group, folder), evaluated(group)
    exporter = Exporter("r")
    statistics = export_batch_statistics(exporter, [group])
    assert told_matches(exporter) == matches
    assert statistics["ungraded_ratio"] == pytest.approx(1 - len(rewards) / len(outcomes))
    if not rewards:
        assert (curriculum.pass_rate(group.prompt_id), curriculum.num_removed, point) == (
            None,
            0,
            None,
        )
        return
    expected = pytest.approx(float(sum(rewards) / len(rewards)))
    assert point is not None
    assert curriculum.pass_rate(group.prompt_id) == expected
    assert (point.pass_rate, statistics["reward_mean"]) == (expected, expected)
    failed = Counter(failure for _, failure, _ in outcomes if failure is not None)
    assert point.truncated_matches == matches
    assert (point.samples, point.ungraded) == (len(rewards), failed.total())
    assert point.timed_out == failed[GradingStatus.TIMEOUT]


def test_a_verifier_that_gives_everybody_a_little_retires_no_prompt(folder: Any) -> None:
    curriculum = observed(graded_group([ended(0.1)] * 16), folder)
    assert curriculum.pass_rate("p0") == pytest.approx(0.1)
    assert curriculum.num_removed == 0


def test_a_truncated_answer_that_matches_is_wrong_in_the_curriculum_and_in_training(
    folder: Any,
) -> None:
    """Nine of ten end with the reference and were cut off: the prompt is far from solved."""
    truncated: Outcome = (1.0, None, StopReason.LENGTH)
    group = graded_group([truncated] * 9 + [ended(0.0)])
    curriculum, point = observed(group, folder), evaluated(group)
    assert (curriculum.pass_rate("p0"), curriculum.num_removed) == (0.0, 0)
    assert point is not None
    assert (point.pass_rate, point.truncated_matches) == (0.0, 9)
    exporter = Exporter("r")
    export_batch_statistics(exporter, [group])
    assert told_matches(exporter) == 9
    with_one_right = graded_group([truncated] * 9 + [ended(1.0)])
    kept = assemble(
        [with_one_right], Recipe(exclude_truncated=False, advantage_normalisation="none")
    ).sequences
    assert [sequence.advantage for sequence in kept] == pytest.approx([-0.1] * 9 + [0.9])
    for excludes in (False, True):
        assert assemble([group], Recipe(exclude_truncated=excludes)).sequences == []


@pytest.mark.parametrize("failed", FAILED)
def test_a_prompt_whose_gradings_all_failed_is_not_retired(
    folder: Any, failed: GradingStatus
) -> None:
    curriculum = observed(graded_group([ended(0.0, failed)] * 16), folder)
    assert (curriculum.pass_rate("p0"), curriculum.num_removed) == (None, 0)


@pytest.mark.protections
def test_programs_that_never_end_are_learnt_from_and_keep_their_prompt(folder: Any) -> None:
    """Half of the answers are right, half are endless loops; graded for real."""
    reference = json.dumps({"kind": "tests", "tests": "assert f(1) == 1"})
    sandbox = Sandbox(Grading(deadline_seconds=30.0, seconds_per_test=0.3))
    bodies = ["return x", "while True: pass"] * 4
    try:
        grades = [
            sandbox.grade("code", f"```python\ndef f(x):\n    {body}\n```", reference)
            for body in bodies
        ]
    finally:
        sandbox.close()
    group = make_group(0, [grade.reward for grade in grades])
    for rollout, grade in zip(group.rollouts, grades, strict=True):
        rollout.grading_status = GradingStatus(grade.status)
    curriculum, point = observed(group, folder), evaluated(group)
    assert point is not None
    assert (curriculum.pass_rate("p0"), point.pass_rate, curriculum.num_removed) == (0.5, 0.5, 0)
    trained = assemble([group], Recipe(advantage_normalisation="none")).sequences
    assert [sequence.advantage for sequence in trained] == [0.5, -0.5] * 4
