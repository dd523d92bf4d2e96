"""Grades the answers of a recorded step again: the grader's part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial

from rollcast.config.errors import UserError
from rollcast.rollouts.records import EpisodeEnd, GradingStatus, PromptTask, Rollout, StopReason
from rollcast.tasks.grading import Verifiers, grade
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.thinking import whole_completion
from rollcast.tasks.verifiers import Grade
from rollcast.trainer.replay.comparison import ReplayReport, TokenPlace
from rollcast.trainer.replay.recorded_batch import RecordedBatch

CHECK = "rewards"
CUT_ENDS = (EpisodeEnd.TOKENS, EpisodeEnd.SECONDS)
"""Ends of an episode whose last turn lacks the token that ends turns."""


Rewards = dict[tuple[int, int], float]
"""By indices of group and rollout."""


def check_grades(batch: RecordedBatch, report: ReplayReport) -> Rewards:
    """Compare each verdict with one of now; returns the rewards that are others now."""
    if batch.tokenizer is None:
        report.not_checked("grader", CHECK, "model.path has no tokenizer on this machine")
        return {}
    tasks = batch.config.tasks
    grading = tasks.grading
    if grading.sandbox == "remote":  # a grader elsewhere has gone with the run
        grading = grading.model_copy(update={"sandbox": "strict"})
    verifiers = Verifiers.from_tasks(tasks)
    left_out: Counter[str] = Counter()
    num_compared = 0
    other_rewards: Rewards = {}
    differences: list[tuple[float, TokenPlace, str]] = []
    with closing(Sandbox(grading, verifiers)) as sandbox:
        grade_again = partial(grade, sandbox=sandbox, verifiers=verifiers)
        for index, group in batch.groups:
            task = batch.bundle.tasks[index]
            for rollout_index, rollout in enumerate(group.rollouts):
                reward, reason = _grade(task, rollout, verifiers, grade_again, batch.text)
                if reason:
                    left_out[reason] += 1
                    continue
                num_compared += 1
                # A reward is a float32 on the wire.
                if (difference := abs(reward - rollout.reward)) > 1e-6:
                    sentence = f"recorded {rollout.reward:g}, graded again {reward:g}"
                    other_rewards[index, rollout_index] = reward
                    place = _end_of_answer(batch, index, rollout_index)
                    differences.append((difference, place, sentence))
    worst = max(differences, key=lambda item: item[0], default=(None, None, ""))
    if num_compared:
        report.add(
            "grader",
            CHECK,
            num_compared,
            len(differences),
            largest=worst[0],
            place=worst[1],
            reason=worst[2],
        )
    for reason, count in left_out.items():
        report.not_checked("grader", CHECK, f"{count} rollouts: {reason}")
    return other_rewards


def _grade(
    task: PromptTask,
    rollout: Rollout,
    verifiers: Verifiers,
    grade_again: Callable[[str, str, str], Grade],
    text: Callable[[list[int]], str],
) -> tuple[float, str]:
    """The reward of now, and the reason why it is not known; empty = it is."""
    try:
        if reason := _why_not(task, rollout, verifiers):
            return 0.0, reason
        verdict = grade_again(task.verifier, _answer(task, rollout, text), task.verifier_reference)
    except UserError as error:
        return 0.0, str(error)
    has_verdict = verdict.status in (GradingStatus.OK, GradingStatus.WRONG)
    return verdict.reward, "" if has_verdict else f"no verdict now: {verdict.failure}"


def _why_not(task: PromptTask, rollout: Rollout, verifiers: Verifiers) -> str:
    """Why a rollout is not graded again; empty = it is."""
    if not rollout.has_verdict:
        return f"the record has no verdict ({rollout.grading_status})"
    if not task.verifier:
        return "the environment gave the reward"
    if verifiers.find(task.verifier).place == "remote":
        return f"the verifier {task.verifier} is a service elsewhere"
    return ""


def _answer(task: PromptTask, rollout: Rollout, text: Callable[[list[int]], str]) -> str:
    """The text that the verifier got: of an episode its last turn."""
    token_ids = rollout.token_ids.tolist()
    has_end = rollout.stop_reason is StopReason.END
    episode = rollout.episode
    if episode is not None:
        if not episode.turns:
            token_ids = []
        else:
            turn = episode.turns[-1]
            sequence = rollout.sequences[turn.sequence]
            token_ids = sequence.token_ids[turn.start : turn.end].tolist()
        has_end = episode.end not in CUT_ENDS
    if has_end:
        token_ids = token_ids[:-1]
    # Enough to see whether the prompt ends in `<think>`, however it is tokenised
    prompt_end = text(task.prompt_token_ids[-16:].tolist())
    return whole_completion(prompt_end, text(token_ids))


def _end_of_answer(batch: RecordedBatch, index: int, rollout_index: int) -> TokenPlace:
    """The place of a rollout's last token, which shows its answer."""
    rollout = batch.bundle.groups[index].rollouts[rollout_index]
    return batch.place(index, rollout_index, 0, max(0, len(rollout.token_ids) - 1))
