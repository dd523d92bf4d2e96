"""Grades the answers of a recorded step again: the grader's part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing

from rollcast.config.errors import UserError
from rollcast.rollouts.records import EpisodeEnd, PromptTask, Rollout, StopReason
from rollcast.tasks.grading import Verifiers, grade
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.thinking import whole_completion
from rollcast.trainer.replay.finding import Place, ReplayReport
from rollcast.trainer.replay.recorded_batch import RecordedBatch

CHECK = "rewards"
CUT_ENDS = (EpisodeEnd.TOKENS, EpisodeEnd.SECONDS)
"""Ends of an episode whose last turn lacks the token that ends turns."""


def check_grades(batch: RecordedBatch, report: ReplayReport) -> None:
    """Compare each verdict with one of now."""
    if batch.tokenizer is None:
        report.not_checked("grader", CHECK, "model.path has no tokenizer on this machine")
        return
    tasks = batch.config.tasks
    grading = tasks.grading
    if grading.sandbox == "remote":  # a grader elsewhere has gone with the run
        grading = grading.model_copy(update={"sandbox": "strict"})
    verifiers = Verifiers.from_tasks(tasks)
    left_out: Counter[str] = Counter()
    num_compared = 0
    worst: tuple[float, Place, str] | None = None
    num_different = 0
    with closing(Sandbox(grading, verifiers)) as sandbox:
        for index, group in batch.groups:
            task = batch.bundle.tasks[index]
            for place, rollout in enumerate(group.rollouts):
                try:
                    reason = _why_not(task, rollout, verifiers)
                    if not reason:
                        verdict = grade(
                            task.verifier,
                            _answer(task, rollout, batch.text),
                            task.verifier_reference,
                            sandbox=sandbox,
                            verifiers=verifiers,
                        )
                        if verdict.status not in ("ok", "wrong"):
                            reason = f"the verifier gives no verdict now: {verdict.failure}"
                except UserError as error:
                    reason = str(error)
                if reason:
                    left_out[reason] += 1
                    continue
                num_compared += 1
                difference = abs(verdict.reward - rollout.reward)
                if difference > 1e-6:
                    num_different += 1
                    if worst is None or difference > worst[0]:
                        sentence = f"recorded {rollout.reward:g}, graded again {verdict.reward:g}"
                        worst = (difference, _with_answer(batch, index, place), sentence)
    if num_compared:
        report.add(
            "grader",
            CHECK,
            num_compared=num_compared,
            num_different=num_different,
            largest=None if worst is None else worst[0],
            place=None if worst is None else worst[1],
            reason="" if worst is None else worst[2],
        )
    for reason, count in left_out.items():
        report.not_checked("grader", CHECK, f"{count} rollouts: {reason}")


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


def _with_answer(batch: RecordedBatch, index: int, place: int) -> Place:
    """The rollout, with the last token of its answer in its text."""
    rollout = batch.bundle.groups[index].rollouts[place]
    return batch.place(index, place, 0, max(0, len(rollout.token_ids) - 1))
