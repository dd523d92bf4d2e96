"""Grades the answers of a recorded step again: the grader's part."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass

from rollcast.config.errors import UserError
from rollcast.rollouts.records import EpisodeEnd, GradingStatus, PromptTask, Rollout, StopReason
from rollcast.tasks.grading import Verifiers, grade
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.thinking import whole_completion
from rollcast.tasks.verifiers import is_built_in
from rollcast.trainer.replay.comparison import ReplayReport, TokenLocation
from rollcast.trainer.replay.recorded_batch import NOT_TRUSTED, RecordedBatch, SequenceKey

CHECK = "rewards"
CUT_ENDS = (EpisodeEnd.TOKENS, EpisodeEnd.SECONDS)
"""Ends of an episode whose last turn lacks the token that ends turns."""
Rewards = dict[tuple[int, int], float]
"""By indices of group and rollout."""


def check_grades(batch: RecordedBatch, report: ReplayReport) -> Rewards:
    """Compare each verdict with one of now; returns the rewards that are others now."""
    if batch.missing_model:
        report.not_checked("grader", CHECK, batch.missing_model)
        return {}
    grading = batch.config.tasks.grading
    # A grader elsewhere has gone with the run; what a stranger records does not open the sandbox.
    if grading.sandbox == "remote" or not batch.is_trusted:
        grading = grading.model_copy(update={"sandbox": "strict"})
    verifiers = Verifiers.from_tasks(batch.config.tasks)
    reasons: Counter[str] = Counter()
    num_compared = 0
    other_rewards: Rewards = {}
    largest = 0.0
    location: TokenLocation | None = None
    sentence = ""
    with closing(Sandbox(grading, verifiers)) as sandbox:
        regrader = _Regrader(batch, verifiers, sandbox)
        for group_index, group in batch.groups:
            task = batch.bundle.tasks[group_index]
            for rollout_index, rollout in enumerate(group.rollouts):
                reward, reason = regrader.grade(task, rollout)
                if reason:
                    reasons[reason] += 1
                    continue
                num_compared += 1
                difference = abs(reward - rollout.reward)
                if difference <= 1e-6:  # a reward is a float32 on the wire
                    continue
                other_rewards[group_index, rollout_index] = reward
                if difference > largest:
                    largest = difference
                    # The last token shows the answer.
                    key = SequenceKey(group_index, rollout_index, 0)
                    location = batch.locate(key, max(0, len(rollout.token_ids) - 1))
                    sentence = f"recorded {rollout.reward:g}, graded again {reward:g}"
    if num_compared:
        counts = (num_compared, len(other_rewards))
        report.add("grader", CHECK, *counts, sentence, location, largest or None)
    for reason, count in reasons.items():
        report.not_checked("grader", CHECK, f"{count} rollouts: {reason}")
    return other_rewards


@dataclass(frozen=True, slots=True)
class _Regrader:
    batch: RecordedBatch
    verifiers: Verifiers
    sandbox: Sandbox

    def grade(self, task: PromptTask, rollout: Rollout) -> tuple[float, str]:
        """The reward of now, and the reason why it is not known; empty = it is."""
        try:
            if reason := self._find_obstacle(task, rollout):
                return 0.0, reason
            verdict = grade(
                task.verifier,
                self._answer(task, rollout),
                task.verifier_reference,
                sandbox=self.sandbox,
                verifiers=self.verifiers,
            )
        except UserError as error:
            return 0.0, str(error)
        has_verdict = verdict.status in (GradingStatus.OK, GradingStatus.WRONG)
        return verdict.reward, "" if has_verdict else f"no verdict now: {verdict.failure}"

    def _find_obstacle(self, task: PromptTask, rollout: Rollout) -> str:
        """Why a rollout is not graded again; empty = it is."""
        if not rollout.has_verdict:
            return f"the record has no verdict ({rollout.grading_status})"
        if not task.verifier:
            return "the environment gave the reward"
        if not self.batch.is_trusted and not is_built_in(task.verifier):
            return f"verifier {task.verifier[:100]}: {NOT_TRUSTED}"
        if self.verifiers.find(task.verifier).place == "remote":
            return f"the verifier {task.verifier} is a service elsewhere"
        return ""

    def _answer(self, task: PromptTask, rollout: Rollout) -> str:
        """The text that the verifier got: of an episode its last turn."""
        token_ids = rollout.token_ids.tolist()
        has_end = rollout.stop_reason is StopReason.END
        episode = rollout.episode
        if episode is not None:
            token_ids = []
            if episode.turns:
                turn = episode.turns[-1]
                sequence = rollout.sequences[turn.sequence]
                token_ids = sequence.token_ids[turn.start : turn.end].tolist()
            has_end = episode.end not in CUT_ENDS
        if has_end:
            token_ids = token_ids[:-1]
        # Enough to see whether the prompt ends in `<think>`, however it is tokenised
        prompt_end = self.batch.decode(task.prompt_token_ids[-16:].tolist())
        return whole_completion(prompt_end, self.batch.decode(token_ids))
